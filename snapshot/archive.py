"""Unpack archives that others made: all of it below one directory, or nothing at all.

Only regular files and directories are taken. An absolute name, `..`, a link of either kind, a device, a second entry of the
same name or an entry below a file is refused with the entry's name, and so is an archive that is damaged or far too large.
Everything is written below a temporary directory that gets its name only when the whole archive was good.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tools.cli import UserError

#: Bytes that an archive may unpack to; the pinned package has 30 million.
LIMIT = 1 << 30
_BLOCK = 1 << 18


def unpack_zip(archive: Path, destination: Path, *, only: str) -> None:
    """Unpack what lies below the directory `only` of a zip file to `destination`, which must not exist."""
    with _whole(destination) as writer, zipfile.ZipFile(archive) as source:
        for info in source.infolist():
            if PurePosixPath(info.filename).parts[:1] != (only,):
                writer.place(info.filename)  # not wanted, but a hostile name says what kind of archive this is
                continue
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise writer.refusal(info.filename, "is neither a file nor a directory")
            if info.is_dir():
                writer.directory(info.filename)
            else:
                with source.open(info) as data:
                    writer.file(info.filename, data, executable=bool(mode & stat.S_IXUSR))


def unpack_tar(stream: BinaryIO, destination: Path) -> dict[str, str]:
    """Unpack a tar stream, compressed or not, to `destination`, which must not exist; each file's name and sha256."""
    with _whole(destination) as writer, _open(stream) as source:
        for info in source:
            if info.issym() or info.islnk():
                raise writer.refusal(info.name, f"is a link to {info.linkname!r}")
            if info.isdir():
                writer.directory(info.name)
            elif info.isreg():
                with source.extractfile(info) as data:
                    writer.file(info.name, data, executable=bool(info.mode & stat.S_IXUSR))
            else:
                raise writer.refusal(info.name, "is neither a file nor a directory")
    return {path.as_posix(): sha for path, sha in writer.hashes.items()}


class _Entry(tarfile.TarInfo):
    """An entry whose header is whole. `tarfile` takes a header that is cut off or broken for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # the end mark
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


def _open(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|*", bufsize=_BLOCK, tarinfo=_Entry)


class _Writer:
    """Writes entries below `root`; knows which names it has written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hashes: dict[PurePosixPath, str] = {}  # of the files
        self._directories: set[PurePosixPath] = {PurePosixPath()}
        self._room = LIMIT

    def refusal(self, name: str, why: str) -> UserError:
        return UserError(f"archive refused, nothing was unpacked: entry {name!r} {why}")

    def place(self, name: str) -> PurePosixPath:
        """Where `name` lies below the root; refuses names that lead anywhere else."""
        path = PurePosixPath(name)
        if path.is_absolute():
            raise self.refusal(name, "has an absolute path")
        if ".." in path.parts:
            raise self.refusal(name, "leads out of the tree with '..'")
        if "\\" in name or "\0" in name:
            raise self.refusal(name, "has a character that no file name of a package has")
        return path

    def directory(self, name: str) -> None:
        self._make(self.place(name), name)

    def file(self, name: str, data: BinaryIO, *, executable: bool) -> None:
        path = self.place(name)
        if path in self.hashes or path in self._directories:
            raise self.refusal(name, "is there twice")
        self._make(path.parent, name)
        sha = hashlib.sha256()
        target = os.open(self.root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if executable else 0o644)
        with open(target, "wb") as out:
            while block := data.read(_BLOCK):
                self._room -= len(block)
                if self._room < 0:
                    raise self.refusal(name, f"makes it larger than {LIMIT} bytes")
                out.write(block)
                sha.update(block)
        self.hashes[path] = sha.hexdigest()

    def _make(self, path: PurePosixPath, name: str) -> None:
        """Make the directory `path`, for the entry `name`."""
        if path in self._directories:
            return
        for step in (path, *path.parents):
            if step in self.hashes:
                raise self.refusal(name, f"needs a directory where {str(step)!r} is a file")
        self._directories.update((path, *path.parents))
        (self.root / path).mkdir(parents=True, exist_ok=True)


_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError)


@contextlib.contextmanager
def _whole(destination: Path) -> Iterator[_Writer]:
    """A writer whose tree appears as `destination` when the block ends well, and not at all when it does not."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{destination.name}.", dir=destination.parent) as temporary:
        root = Path(temporary, "root")
        root.mkdir()
        try:
            yield _Writer(root)
        except _DAMAGE as error:
            raise UserError(f"archive refused, nothing was unpacked: it is damaged ({error})") from error
        except OSError as error:
            raise UserError(f"archive not unpacked to {destination}: {error}") from error
        root.rename(destination)
