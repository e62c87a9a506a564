"""A host's content store: each file once, named by its sha256, from which releases are linked. It makes a push resumable.

    root/store/<2 hex>/<sha256>[.x]    .x: executable. A file that is still arriving is .part-<sha256>[.x]

An object that a whole release links was on the disk before that release got its name, so it is taken by its size; any other
is hashed first: after a power cut it may be empty. Standard library only: it travels to hosts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from deploy import digest, manifest, switch
from deploy.layout import Layout
from tools.errors import UserError

#: Bytes that stay free, whatever is written.
RESERVE = 256 << 20
_BLOCK = 1 << 20
#: sha256, size in bytes, executable.
Wanted = tuple[str, int, bool]


class Store:
    """The store under `layout.root`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.folder = layout.root / "store"

    def path(self, sha: str, executable: bool) -> Path:
        if len(sha) != 64 or set(sha) - set("0123456789abcdef"):
            raise UserError(f"{sha!r} is no sha256")
        return self.folder / sha[:2] / (sha + ".x" * executable)

    def _part(self, sha: str, executable: bool) -> Path:
        return self.folder / f".part-{self.path(sha, executable).name}"

    def lacks(self, wanted: list[Wanted], links: int) -> list[tuple[str, int, bool, int]]:
        """What of `wanted` is not here, with the bytes of it that have come already. Checks that it will fit, with `links`
        directory entries."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.layout.releases.mkdir(parents=True, exist_ok=True)
        for left in self.layout.releases.glob(".new-*"):
            shutil.rmtree(left)
        missing = []
        for sha, size, executable in wanted:
            path = self.path(sha, executable)
            try:
                stat = path.stat()
                if stat.st_size == size and (stat.st_nlink > 1 or digest.of_file(path) == sha):
                    continue
                path.unlink()
            except FileNotFoundError:
                pass
            part = self._part(sha, executable)
            missing.append((sha, size, executable, min(part.stat().st_size, size) if part.exists() else 0))
        disk = os.statvfs(self.folder)
        need = sum(size - have for _, size, _, have in missing) + links * 64 + RESERVE
        free, inodes = disk.f_bavail * disk.f_frsize, len(missing) + links // 8 + 64
        if free < need:
            raise UserError(f"{self.layout.root} has {free >> 20} MiB free, the release needs {need >> 20} MiB: make room there")
        if disk.f_files and disk.f_favail < inodes:
            raise UserError(
                f"{self.layout.root} has {disk.f_favail} inodes free, the release needs about {inodes}: make room there"
            )
        return missing

    def take(self, stream: BinaryIO, files: list[tuple[str, int, bool, int]]) -> int:
        """Read the rest of each file from `stream`, one after the other; each has its name once its hash is right."""
        for sha, size, executable, have in files:
            part, path = self._part(sha, executable), self.path(sha, executable)
            with open(part, "r+b" if have else "wb") as out:
                out.truncate(have)
                out.seek(have)
                left = size - have
                while left:
                    block = stream.read(min(_BLOCK, left))
                    if not block:
                        raise EOFError("the controller is gone")
                    out.write(block)
                    left -= len(block)
            if digest.of_file(part) != sha:
                part.unlink()
                raise UserError(f"what arrived as {sha[:12]} has another sha256: the link or the source changed it; apply again")
            os.chmod(part, 0o555 if executable else 0o444)
            path.parent.mkdir(exist_ok=True)
            os.rename(part, path)
        return len(files)

    def stage(self, release: str, files: list[tuple[str, str, bool]]) -> None:
        """Lay out a release from the store, unless it is there: (path, sha256, executable). Whole and on the disk, or nothing."""
        folder, temporary = self.layout.release(release), self.layout.releases / f".new-{release}"
        if manifest.load(folder):
            return
        try:
            made = set()
            for name, sha, executable in files:
                target = temporary / name
                if ".." in target.parts or not target.is_relative_to(temporary):
                    raise UserError(f"{name} is no path in a release")
                if target.parent not in made:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    made.add(target.parent)
                os.link(self.path(sha, executable), target)
            switch.flush(self.layout.root)
            if folder.exists():
                shutil.rmtree(folder)
            os.rename(temporary, folder)
            switch.fsync_folder(self.layout.releases)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def collect(self) -> int:
        """Remove what no release links any more."""
        gone = 0
        for path in self.folder.glob("??/*"):
            if path.stat().st_nlink == 1:
                path.unlink()
                gone += 1
        return gone


def sha_of(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()
