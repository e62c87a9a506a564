"""A folder of wheels, read one library at a time: each is unpacked to an unnamed place, read, and gone."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from overlay.doctor import dist, elf, tree
from overlay.doctor.facts import LIBRARY, Damage, Distribution, Entry, Facts, Library

#: Bytes of one unpacked library: the largest real one has 1.1 GB.
_LIMIT = 8 << 30


def read(folder: Path, *, python: str = "3.11") -> Facts:
    """The facts of all wheels in a folder, as if they were installed together. Hard cases become damage, never an exception."""
    distributions, libraries, damage = [], [], []
    labels: dict[str, str] = {}
    cuda = None
    for wheel in sorted(folder.glob("*.whl")):
        try:
            with zipfile.ZipFile(wheel) as archive:
                one, stated = _wheel(archive, wheel.name, libraries, damage)
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError, EOFError) as error:
            damage.append(Damage(wheel.name, f"it is not a whole wheel ({error})"))
            continue
        distributions.append(one)
        for name, constants in stated.items():
            if constants.get("__version__"):
                labels[name] = str(constants["__version__"])
            if name == "torch" and constants.get("cuda"):
                cuda = str(constants["cuda"])
    return Facts(
        kind="wheels",
        root=str(folder),
        python=python,
        distributions=tuple(distributions),
        labels=labels,
        cuda=cuda,
        libraries=tuple(libraries),
        damage=tuple(damage),
    )


def _wheel(
    archive: zipfile.ZipFile, wheel: str, libraries: list[Library], damage: list[Damage]
) -> tuple[Distribution, dict[str, dict[str, object]]]:
    members = archive.namelist()
    info = next((name for name in members if name.endswith(".dist-info/METADATA") and name.count("/") == 1), None)
    if info is None:
        raise ValueError("it has no METADATA")
    name, version, requires = dist.metadata(archive.read(info).decode(errors="replace"))
    if not name or not version:
        raise ValueError("its METADATA names no package and version")
    record = info.removesuffix("METADATA") + "RECORD"
    lines = dist.rows(archive.read(record).decode(errors="replace")) if record in members else []
    present = set(members)
    entries = tuple(
        Entry(path, digest.removeprefix("sha256=") or None, None, "same" if path in present else "missing")
        for path, digest, _ in lines
        if not dist.leaves(path)
    )
    outside = tuple(path for path in (*members, *(line[0] for line in lines)) if dist.leaves(path))
    for member in members:
        if LIBRARY.search(member) and not dist.leaves(member):
            _library(archive, member, wheel, name, libraries, damage)
    stated = {}
    for package in tree.LABELLED:
        if f"{package}/version.py" in present:
            try:
                stated[package] = tree.constants(archive.read(f"{package}/version.py").decode(errors="replace")[:100_000])
            except (SyntaxError, ValueError, RecursionError):
                damage.append(Damage(f"{wheel}:{package}/version.py", "it can't be parsed"))
    return Distribution(name, version, requires, entries, tuple(sorted(set(outside)))), stated


def _library(
    archive: zipfile.ZipFile, member: str, wheel: str, owner: str, libraries: list[Library], damage: list[Damage]
) -> None:
    if archive.getinfo(member).file_size > _LIMIT:
        damage.append(Damage(f"{wheel}:{member}", "it is larger than any library"))
        return
    with archive.open(member) as packed, tempfile.NamedTemporaryFile() as unpacked:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
        unpacked.flush()
        try:
            # Scripts and data of a wheel lie below NAME.data; what it installs is what follows.
            libraries.append(Library.of(str(PurePosixPath(member)), owner, elf.read(Path(unpacked.name))))
        except elf.Damaged as error:
            damage.append(Damage(f"{wheel}:{member}", str(error)))
