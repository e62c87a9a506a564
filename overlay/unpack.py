"""Wheels to one import root: every byte as its RECORD has it, no path owned twice with different bytes, nothing outside.

Scripts and headers of a wheel are left out: a site root is imported from, not run from. A RECORD is kept byte for byte
unless it names what is left out or moved.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import posixpath
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from overlay.doctor import dist
from tools.cli import UserError

_BLOCK = 1 << 20
#: Folders of NAME.data whose contents lie in the root itself.
_ROOTS = ("purelib", "platlib", "data")


@dataclass(frozen=True, slots=True)
class _Member:
    """One file of a wheel, and where it goes."""

    name: str  # in the wheel
    path: str  # in the root
    digest: str  # as RECORD has it: URL-safe base64 of sha256
    size: str


@dataclass(frozen=True, slots=True)
class _Content:
    """What a wheel brings."""

    wheel: Path
    record: str  # its RECORD's path
    members: tuple[_Member, ...]
    moved: bool  # whether anything lies elsewhere than in the wheel, or is left out


def all_of(wheels: Iterable[Path], root: Path, leave_out: Iterable[str] = ()) -> None:
    """Unpack into `root`, which is made, all but the paths of `leave_out`.

    Raises UserError naming the wheel and the file; then `root` is not whole.
    """
    contents = [_content(wheel, frozenset(leave_out)) for wheel in wheels]
    _refuse_collisions(contents)
    root.mkdir(parents=True)
    # Decompression and hashing let go of the interpreter's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        largest_first = sorted(contents, key=lambda content: -content.wheel.stat().st_size)
        for done in [pool.submit(_extract, content, root) for content in largest_first]:
            done.result()


def _content(wheel: Path, leave_out: frozenset[str]) -> _Content:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            record = next((name for name in names if name.endswith(".dist-info/RECORD") and name.count("/") == 1), None)
            if record is None:
                raise UserError(f"{wheel.name} has no RECORD")
            rows = {path: (digest, size) for path, digest, size in dist.rows(archive.read(record).decode())}
    except (zipfile.BadZipFile, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{wheel.name} is not a whole wheel ({error})") from error
    data = record.removesuffix(".dist-info/RECORD") + ".data/"
    members, moved = [], False
    for name in names:
        if dist.leaves(name) or "\\" in name:
            raise UserError(f"{wheel.name} has a file {name!r}, which would lie outside of the site root")
        path = name
        if name.startswith(data):
            moved = True
            kind, _, path = name.removeprefix(data).partition("/")
            if kind not in _ROOTS:
                continue
        if path in leave_out:
            moved = True
            continue
        if name == record or (posixpath.dirname(name) + "/RECORD" == record and name.endswith((".jws", ".p7s"))):
            continue
        digest, size = rows.get(name, ("", ""))
        if not digest.startswith("sha256="):
            raise UserError(f"{wheel.name} has a file {name!r} without a sha256 in its RECORD")
        members.append(_Member(name, path, digest.removeprefix("sha256="), size))
    return _Content(wheel, record, tuple(members), moved)


def _refuse_collisions(contents: Iterable[_Content]) -> None:
    owners: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for content in contents:
        for member in content.members:
            owners[member.path][member.digest].append(content.wheel.name.split("-")[0])
    clashes = {path: by for path, by in owners.items() if len(by) > 1}
    if clashes:
        path, by = min(clashes.items())
        names = sorted({name for group in by.values() for name in group})
        more = f", and {len(clashes) - 1} more paths are" if len(clashes) > 1 else " is"
        raise UserError(
            f"{path}{more} owned by more than one package with different bytes: {' and '.join(names)}; "
            "a site root can hold only one of them, so leave one out of the profile"
        )


def _extract(content: _Content, root: Path) -> None:
    with zipfile.ZipFile(content.wheel) as archive:
        for member in content.members:
            target = root / member.path
            try:
                _write(archive, member, target)
            except (zipfile.BadZipFile, zipfile.zlib.error, EOFError) as error:
                raise UserError(f"{content.wheel.name} is damaged at {member.name} ({error})") from error
            except FileExistsError:
                continue  # another package brought the same bytes
            except OSError as error:
                raise UserError(f"{member.path} of {content.wheel.name} can't be written: {error.strerror}") from error
        record = archive.read(content.record)
        (root / content.record).write_bytes(_moved(content) if content.moved else record)


def _write(archive: zipfile.ZipFile, member: _Member, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    executable = archive.getinfo(member.name).external_attr >> 16 & 0o111
    digest = hashlib.sha256()
    with archive.open(member.name) as packed, target.open("xb") as file:
        while block := packed.read(_BLOCK):
            digest.update(block)
            file.write(block)
        os.fchmod(file.fileno(), 0o755 if executable else 0o644)
    if base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=") != member.digest:
        raise zipfile.BadZipFile("its bytes are not those of RECORD")


def _moved(content: _Content) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((member.path, f"sha256={member.digest}", member.size) for member in content.members)
    writer.writerow((content.record, "", ""))
    return text.getvalue().encode()
