"""The patched tree is laid out whole or not at all, and no file that the series touches shares its bytes with the pin.

`.cache/tree/<version>-<digest>/` holds `sglang/`: touched files are files of their own; the others are hard links to the
pristine tree (copies, where the file system has no hard links), so that a tree costs next to nothing and many can lie
beside each other. It is made under a temporary name and renamed.

Linked files are made read-only, which stops a stray write for everybody but root. What got through all the same is found
at the next `build`: it compares size and time of every file with those of the day it was laid out, and names the file.

    build().root / PACKAGE
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from patches import apply, series
from patches.errors import PatchError
from patches.series import Series
from tools.cli import UserError
from tools.paths import CACHE, VERSION

#: The package's folder in an import root.
PACKAGE = "sglang"
#: Beside `sglang/`: size and time (ns) of every file, as laid out.
RECORD = ".laid-out.json"


@dataclass(frozen=True)
class PatchedTree:
    """An import root with the patched package; `digest` is the series' digest. Not to be written to: copy it with `copy_to`."""

    root: Path
    digest: str

    def copy_to(self, target: Path) -> Path:
        """A copy to do with as one likes: own files, writable, no bytecode. `target` must not exist."""
        shutil.copytree(self.root, target, ignore=shutil.ignore_patterns("__pycache__", RECORD))
        for path in target.rglob("*"):
            if path.is_file():
                path.chmod(path.stat().st_mode | stat.S_IWUSR)
        return target


def build(version: str = VERSION) -> PatchedTree:
    """Lay out the patched tree, or take the one that is there.

    Raises:
        UserError: the series does not apply (with the patch's file and line), or a file of the tree was written to since.
    """
    from snapshot.tree import pristine

    patched = series.load(version)
    return lay_out(patched, lambda: pristine(version), CACHE / "tree")


def lay_out(patched: Series, pristine: Callable[[], Path], cache: Path) -> PatchedTree:
    """`build` with its places given; `pristine` is called only if there is something to lay out."""
    tree = PatchedTree(cache / f"{patched.version}-{patched.digest[:12]}", patched.digest)
    if tree.root.exists():
        _check(tree.root)
        return tree
    source = pristine()
    contents = patched_files(patched, source)
    cache.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{tree.root.name}.", dir=cache))
    try:
        temporary.chmod(0o755)
        _fill(source, temporary, contents)
        _record(temporary)
        try:
            temporary.rename(tree.root)
        except OSError:
            if not tree.root.exists():
                raise
            # Somebody else laid out the same tree meanwhile.
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return tree


def patched_files(patched: Series, source: Path) -> dict[str, bytes | None]:
    """Content of every touched file after the whole series on the pristine tree `source`; None: it is gone.

    Raises:
        PatchError: a pre-image is not the pristine file, or a patch does not apply exactly.
    """
    read = apply.reader(source)
    contents: dict[str, bytes | None] = {}
    for path, steps in patched.chains.items():
        try:
            contents[path] = apply.advance(path, steps, read(path))
        except apply.NotPlain as reason:
            raise PatchError(steps[0].patch, steps[0].diff.line, f"{path} in the pristine tree: {reason}") from None
    return contents


def files(root: Path) -> Iterable[str]:
    """Posix paths of the files under `root / PACKAGE`, without bytecode."""
    for folder, names, found in os.walk(root / PACKAGE):
        names[:] = sorted(name for name in names if name != "__pycache__")
        below = os.path.relpath(folder, root)
        for name in sorted(found):
            yield f"{below}/{name}"


def _fill(source: Path, target: Path, contents: dict[str, bytes | None]) -> None:
    made: set[Path] = set()

    def place(path: str) -> Path:
        where = target / path
        if where.parent not in made:
            where.parent.mkdir(parents=True, exist_ok=True)
            made.add(where.parent)
        return where

    for path in files(source):
        if path not in contents:
            _link(source / path, place(path))
    for path, data in contents.items():
        if data is None:
            continue
        where = place(path)
        where.write_bytes(data)
        original = source / path
        where.chmod(stat.S_IMODE(original.stat().st_mode) & ~0o222 if original.exists() else 0o444)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    mode = stat.S_IMODE(target.stat().st_mode)
    if mode & 0o222:
        target.chmod(mode & ~0o222)


def _record(root: Path) -> None:
    entries = {path: _stamp(root / path) for path in files(root)}
    (root / RECORD).write_text(json.dumps(entries))


def _stamp(path: Path | str) -> list[int]:
    status = os.lstat(path)
    return [status.st_size, status.st_mtime_ns]


def _check(root: Path) -> None:
    try:
        entries = json.loads((root / RECORD).read_text())
    except (OSError, ValueError):
        raise UserError(f"{root} was not laid out by `make tree` (it has no {RECORD}): delete it and run again") from None
    present = set(files(root))
    odd = sorted(
        (present ^ entries.keys()) | {path for path in present & entries.keys() if _stamp(f"{root}/{path}") != entries[path]}
    )
    if odd:
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        raise UserError(
            f"{', '.join(odd[:3])}{more} in {root} changed after it was laid out: take what you need into `make edit`, "
            "delete the folder, run `make snapshot-check` (files are shared with the pristine tree), and run again"
        )
