"""The pinned tree on this machine: `pristine` gives a directory in which every byte is the pin's, or raises.

It is laid out from the wheel once. Every later call reads all its files again (a fifth of a second), since patched trees
share its files by hard links and a careless edit there changes them here.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from snapshot import archive, wheel
from snapshot.compare import Comparison, compare, first_difference
from snapshot.manifest import PACKAGE, Manifest, load
from tools.cli import UserError, err
from tools.files import short
from tools.paths import CACHE, VERSION


def location(version: str = VERSION) -> Path:
    """The import root of the pinned tree; it may not be there yet."""
    return CACHE / "snapshot" / version


def pristine(version: str = VERSION, *, progress: bool = True) -> Path:
    """The import root that contains `sglang/` exactly as pinned; fetched and laid out at the first call.

    A file that differs raises `UserError` with its name and line: what was edited is the user's to throw away.
    """
    manifest = load(version)
    root = location(version)
    if not root.is_dir():
        lay_out(manifest, root, progress=progress)
    comparison = compare(root, manifest)
    if not comparison.equal:
        places = "; ".join(describe(comparison, root, manifest))
        raise UserError(f"the snapshot {short(root)} differs from the pin: {places}. Remove that directory to lay it out anew")
    return root


def lay_out(manifest: Manifest, root: Path, *, progress: bool) -> None:
    """Fetch the wheel and unpack its package to `root`, which must not exist."""
    with err.status(f"fetching {manifest.wheel} by its hash") as status:
        if progress and not err.is_terminal:
            err.print(f"fetching {manifest.wheel} by its hash")
        file = wheel.fetch(manifest)
        status.update(f"unpacking {len(manifest.files)} files")
        archive.unpack_zip(file, root, only=PACKAGE)


def original(path: str, manifest: Manifest) -> bytes:
    """The pinned bytes of one file, read from the wheel and not from the tree."""
    with zipfile.ZipFile(wheel.fetch(manifest)) as source:
        return source.read(path)


def describe(comparison: Comparison, root: Path, manifest: Manifest) -> list[str]:
    """One phrase a differing file of the tree at `root`: its kind, its name, and the line where a changed one departs."""
    return [f"{kind} {_shown(path)}{_where(path, kind, root, manifest)}" for path, kind in comparison.differences.items()]


def _where(path: str, kind: str, root: Path, manifest: Manifest) -> str:
    file = root / path
    if kind != "changed":
        return ""
    if file.is_symlink() or not file.is_file():
        return ", no longer a file of its own"
    try:
        return f", from line {first_difference(file.read_bytes(), original(path, manifest))}"
    except UserError:
        return ""  # without the wheel the file is still named, only its line is not


def _shown(path: str) -> str:
    """A name from somewhere else, safe to print on a terminal."""
    return path if path.isprintable() else repr(path)
