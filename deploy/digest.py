"""One hash for a folder: over relative names and bytes of its files. Byte code caches don't count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path


def files(folder: Path) -> Iterator[Path]:
    """The files of `folder`, sorted, without `__pycache__`."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def of_file(path: Path) -> str:
    """sha256 of a file, in hex."""
    with open(path, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def of_folders(*folders: Path) -> str:
    """sha256 over all files of the folders, in hex; the folders' own names count, where they lie doesn't."""
    total = hashlib.sha256()
    for folder in folders:
        for path in files(folder):
            total.update(f"{path.relative_to(folder.parent).as_posix()} {of_file(path)}\n".encode())
    return total.hexdigest()
