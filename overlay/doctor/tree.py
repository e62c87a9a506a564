"""An installed tree, read in one walk: nothing of it is imported or run, nothing is written, no link out of it is followed."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

from overlay.doctor import dist, elf
from overlay.doctor.facts import LIBRARY, Damage, Distribution, Facts, Library

#: Import packages whose version.py says which CUDA they were built for.
LABELLED = ("torch", "torchaudio", "torchvision", "torchcodec")


def site_of(path: Path) -> Path | None:
    """The import root that a path means: itself, or a virtual environment's site-packages. None if it is neither."""
    if (path / "pyvenv.cfg").is_file():
        return next(iter(sorted(path.glob("lib/python3*/site-packages"))), None)
    if any(path.glob("*.dist-info")) or path.name in ("site-packages", "dist-packages"):
        return path
    return None


def read(root: Path, *, hashes: bool = False) -> Facts:
    """The facts of one import root. `hashes`: compare every file's sha256 with RECORD's, not only its size."""
    root = root.resolve()
    damage: list[Damage] = []
    found, links, infos = _walk(root, damage)
    distributions = [one for info in infos if (one := dist.installed(root, info, damage, hashes=hashes)) is not None]
    owners = {entry.path: one.name for one in distributions for entry in one.record or ()}
    libraries = []
    for path in found:
        try:
            libraries.append(Library.of(path, owners.get(path), elf.read(root / path)))
        except elf.Damaged as error:
            if not _linker_script(root / path):
                damage.append(Damage(path, str(error)))
        except OSError as error:
            damage.append(Damage(path, dist.reason(error)))
    labels, cuda = _labels(root, damage)
    return Facts(
        kind="tree",
        root=str(root),
        python=_python(root, distributions),
        distributions=tuple(distributions),
        labels=labels,
        cuda=cuda,
        libraries=tuple(libraries),
        links=links,
        damage=tuple(damage),
    )


def _walk(root: Path, damage: list[Damage]) -> tuple[list[str], dict[str, str], list[str]]:
    """Paths of libraries, links to libraries, and names of `.dist-info` folders, each sorted."""

    def unreadable(error: OSError) -> None:
        damage.append(Damage(os.path.relpath(error.filename or root, root), dist.reason(error)))

    libraries, links = [], {}
    for folder, folders, files in os.walk(root, onerror=unreadable, followlinks=False):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in filter(LIBRARY.search, sorted(files)):
            place = Path(folder, name)
            path = place.relative_to(root).as_posix()
            mode = os.lstat(place).st_mode
            if stat.S_ISREG(mode):
                libraries.append(path)
            elif stat.S_ISLNK(mode):
                _link(root, place, path, links, damage)
    infos = sorted(place.name for place in root.glob("*.dist-info") if place.is_dir() and not place.is_symlink())
    return libraries, links, infos


def _link(root: Path, place: Path, path: str, links: dict[str, str], damage: list[Damage]) -> None:
    try:
        target = place.resolve(strict=True)
    except FileNotFoundError:
        damage.append(Damage(path, "it is a link to nothing"))
        return
    except (OSError, RuntimeError) as error:
        damage.append(Damage(path, dist.reason(error)))
        return
    if target.is_relative_to(root):
        links[path] = target.relative_to(root).as_posix()
    else:
        damage.append(Damage(path, "it is a link that leads out of the root, which is not followed"))


def _linker_script(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(512)
    except OSError:
        return False
    return head.startswith((b"/* GNU ld", b"INPUT", b"GROUP"))


def _labels(root: Path, damage: list[Damage]) -> tuple[dict[str, str], str | None]:
    labels, cuda = {}, None
    for name in LABELLED:
        path = f"{name}/version.py"
        if not (root / path).is_file():
            continue
        try:
            if not (root / path).resolve().is_relative_to(root):
                raise ValueError("a link out of the root")
            stated = constants((root / path).read_text(errors="replace")[:100_000])
        except (OSError, SyntaxError, ValueError, RuntimeError, RecursionError, MemoryError) as error:
            why = dist.reason(error) if isinstance(error, OSError) else "it can't be parsed"
            damage.append(Damage(path, why))
            continue
        if stated.get("__version__"):
            labels[name] = str(stated["__version__"])
        if name == "torch" and stated.get("cuda"):
            cuda = str(stated["cuda"])
    return labels, cuda


def constants(source: str) -> dict[str, object]:
    """The module-level names of a Python source that are given a literal; the source is parsed, never run."""
    stated: dict[str, object] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
                stated[target.id] = node.value.value
    return stated


def _python(root: Path, distributions: list[Distribution]) -> str:
    """The Python that a root is for: its folder's name, or what its extension modules are built for."""
    for part in reversed(root.parts):
        if part.startswith("python3."):
            return part.removeprefix("python")
    for one in distributions:
        for entry in one.record or ():
            _, mark, rest = entry.path.partition(".cpython-3")
            digits = rest.split("-")[0].split(".")[0]
            if mark and digits.isdecimal():
                return f"3.{digits}"
    return "3.11"
