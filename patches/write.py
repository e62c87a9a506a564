"""Files are replaced, never written into, and either all of them or none.

First every new file is written under a temporary name beside its target and flushed to the disk, and every old one kept by a
second name; a full disk shows here, with nothing changed. Then the renames. If one fails, those that were done are taken
back from the kept names, which needs no space. A target that is a hard link (package managers link from their caches)
keeps its other names' content, because only the name in this tree is given to the new file.

A process killed between two renames leaves whole files, some old and some new: the next run finishes (`already` for the
new ones), and the temporary names are fixed, so it takes them over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.cli import UserError


@dataclass(frozen=True)
class _Change:
    target: Path
    data: bytes | None

    @property
    def new(self) -> Path:
        return self.target.with_name(f".{self.target.name}.patch-new")

    @property
    def kept(self) -> Path:
        return self.target.with_name(f".{self.target.name}.patch-old")


def write(root: Path, contents: Mapping[str, bytes | None]) -> None:
    """Give each path under `root` its new bytes (None: remove it). The caller has looked that no path leads through a link.

    A replaced file keeps its mode and, where permitted, its owner; a new one gets 0644. Compiled `.pyc` of the paths go, and
    folders that become empty.

    Raises:
        UserError: code 1, nothing is changed; or code 4, and the files named could not be put back.
    """
    changes = [_Change(root / path, data) for path, data in sorted(contents.items())]
    made: list[Path] = []
    done: list[_Change] = []
    try:
        for change in changes:
            _stage(change, made)
        for change in changes:
            # Noted before: an interrupt may come right after the rename, and putting back twice does no harm.
            done.append(change)
            if change.data is None:
                change.target.unlink()
            else:
                os.replace(change.new, change.target)
    except BaseException as error:
        lost = [str(change.target) for change in reversed(done) if not _put_back(change)]
        _tidy(changes, keep=lost)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if lost:
            raise UserError(
                f"writing failed ({error}), and these could not be put back: {', '.join(lost)}; "
                "beside each lies the old file as .<name>.patch-old: rename it back",
                code=4,
            ) from error
        if isinstance(error, OSError):
            raise UserError(f"writing failed ({error}): every file is as it was; mend that and run again") from error
        raise
    _tidy(changes, keep=())
    for change in changes:
        _drop_compiled(root, change)
    for folder in {change.target.parent for change in changes}:
        _flush_folder(folder)


def _stage(change: _Change, made: list[Path]) -> None:
    """Write the new file beside its target, and keep the old one by a second name."""
    missing = [folder for folder in change.target.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir()
        made.append(folder)
    for path in (change.new, change.kept):
        path.unlink(missing_ok=True)
    old = os.lstat(change.target) if os.path.lexists(change.target) else None
    if old:
        try:
            os.link(change.target, change.kept, follow_symlinks=False)
        except OSError:  # A file system without hard links.
            shutil.copy2(change.target, change.kept)
    if change.data is None:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(change.new, flags, 0o600), "wb") as file:
        file.write(change.data)
        file.flush()
        if old and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):
                os.fchown(file.fileno(), old.st_uid, old.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) if old else 0o644)
        os.fsync(file.fileno())


def _put_back(change: _Change) -> bool:
    try:
        if os.path.lexists(change.kept):
            os.replace(change.kept, change.target)
            # Renaming one hard link over another of the same file does nothing, and the second name stays.
            change.kept.unlink(missing_ok=True)
        else:
            change.target.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _tidy(changes: list[_Change], *, keep: list[str] | tuple[()]) -> None:
    for change in changes:
        with contextlib.suppress(OSError):
            change.new.unlink(missing_ok=True)
        if str(change.target) not in keep:
            with contextlib.suppress(OSError):
                change.kept.unlink(missing_ok=True)


def _drop_compiled(root: Path, change: _Change) -> None:
    """Remove compiled files, which Python trusts by size and time alone, and folders that a removal leaves empty."""
    cache = change.target.parent / "__pycache__"
    if change.target.suffix == ".py" and cache.is_dir() and not cache.is_symlink():
        for compiled in cache.glob(f"{_glob_escape(change.target.stem)}.*.pyc"):
            compiled.unlink(missing_ok=True)
    if change.data is None:
        for folder in (cache, *change.target.parents):
            if folder == root:
                break
            with contextlib.suppress(OSError):  # Not there, or not empty.
                folder.rmdir()


def _glob_escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
