"""Installed packages' metadata: METADATA and RECORD, read as text; a path that leaves the root is named and never followed."""

from __future__ import annotations

import base64
import csv
import email.parser
import functools
import hashlib
import os
import posixpath
import re
import stat
from pathlib import Path

from overlay.doctor.facts import Damage, Distribution, Entry

#: Where installers put scripts and data of a site: in RECORD with leading dots, and not what anything links against.
_INSTALLED_BESIDE = re.compile(r"(\.\./)+(bin|share|etc|include|man|Scripts|lib/pkgconfig|lib/cmake)/[^.]")
#: Larger metadata than any package has: not read.
_LIMIT = 64 << 20


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata(text: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Name, version and requirements of a METADATA file."""
    head = email.parser.HeaderParser().parsestr(text.split("\n\n", 1)[0] + "\n\n")
    name = head.get("Name")
    return (normal(name) if name else None), head.get("Version"), tuple(head.get_all("Requires-Dist") or ())


def installed(root: Path, info: str, damage: list[Damage], *, hashes: bool) -> Distribution | None:
    """One `.dist-info` folder of a site root; what is wrong with it goes to `damage`."""
    name, version, requires = metadata(_read(root, f"{info}/METADATA", damage) or "")
    from_folder = info.removesuffix(".dist-info").rsplit("-", 1)
    if not name or not version:
        damage.append(Damage(f"{info}/METADATA", "it names no package and version"))
        name, version = normal(from_folder[0]), from_folder[-1] if len(from_folder) > 1 else "unknown"
    text = _read(root, f"{info}/RECORD", damage, missing_is_damage=False)
    if text is None:
        return Distribution(name, version, requires)
    entries, outside = [], []
    for path, digest, size in rows(text):
        if leaves(path):
            if not _INSTALLED_BESIDE.match(path):
                outside.append(path)
            continue
        sha256 = digest.removeprefix("sha256=") if digest.startswith("sha256=") else None
        length = int(size) if size.isdecimal() else None
        entries.append(Entry(path, sha256, length, _state(root, path, length, sha256 if hashes else None)))
    return Distribution(name, version, requires, tuple(entries), tuple(outside))


def rows(text: str) -> list[tuple[str, str, str]]:
    """The lines of a RECORD: path, hash, size. Broken lines are left out."""
    try:
        return [(row[0], row[1], row[2]) for row in csv.reader(text.splitlines()) if len(row) >= 3 and row[0]]
    except csv.Error:
        return []


def leaves(path: str) -> bool:
    """Whether a path of a RECORD names something outside of its root."""
    if ".." not in path and "\0" not in path and not path.startswith("/"):
        return False
    return path.startswith("/") or "\0" in path or posixpath.normpath(path).split("/")[0] == ".."


def _read(root: Path, path: str, damage: list[Damage], *, missing_is_damage: bool = True) -> str | None:
    place = root / path
    try:
        if place.is_symlink() and not place.resolve().is_relative_to(root):
            damage.append(Damage(path, "it is a link that leads out of the root, which is not followed"))
            return None
        found = place.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LIMIT:
            damage.append(Damage(path, "it is not a file of a size that metadata has"))
            return None
        return place.read_text(errors="replace")
    except FileNotFoundError:
        if missing_is_damage:
            damage.append(Damage(path, "it is missing"))
    except (OSError, RuntimeError) as error:
        damage.append(Damage(path, reason(error)))
    return None


def _state(root: Path, path: str, size: int | None, sha256: str | None) -> str:
    place = f"{root}/{path}"  # a hundred thousand times: no object for each
    try:
        if not _inside(root, posixpath.dirname(path)):
            return "link"
        found = os.lstat(place)
        if stat.S_ISLNK(found.st_mode):
            if not Path(place).resolve().is_relative_to(root):
                return "link"
            found = os.stat(place)
        if size is not None and found.st_size != size:
            return "size"
        if sha256 is not None and stat.S_ISREG(found.st_mode):
            return "same" if _sha256(place) == sha256 else "hash"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, RuntimeError, ValueError):
        return "same"  # not readable: the library reader says so where it matters
    return "same"


def _sha256(place: str) -> str:
    digest = hashlib.sha256()
    with open(place, "rb") as stream:  # hashlib.file_digest is not there on a host's Python 3.10
        while block := stream.read(1 << 20):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


@functools.lru_cache(maxsize=1 << 16)
def _inside(root: Path, folder: str) -> bool:
    """Whether a folder of a RECORD lies in the root when the links on the way are followed."""
    return (root / folder).resolve().is_relative_to(root)


def reason(error: BaseException) -> str:
    """Why a file could not be read, in words."""
    if isinstance(error, PermissionError):
        return "it may not be read (no permission)"
    if isinstance(error, RuntimeError) or getattr(error, "errno", None) == 40:
        return "it is a link that leads to itself"
    return f"it can't be read ({getattr(error, 'strerror', None) or error})"
