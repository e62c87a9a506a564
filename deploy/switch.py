"""Points `current` at a release. Old or new, never between: at every instant, also after a kill or a power cut, `current`
is either the link that it was or a link to a release that is whole on the disk.

A link is made under a temporary name and renamed over the old one; the file system is flushed before the rename (so that
what the link names is there) and after it (so that the rename is). `previous` moves first: a stop between the two
renames leaves `current` untouched.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from deploy.layout import Layout
from tools.errors import UserError

#: Seconds that flushing a file system may take.
FLUSH = 120


def read(link: Path) -> str | None:
    """The release that `link` points to; None if there is no link."""
    try:
        return Path(os.readlink(link)).name
    except FileNotFoundError:
        return None


def switch(layout: Layout, current: str | None, previous: str | None) -> None:
    """Point both links; None takes a link away. Doing it twice is the same as doing it once."""
    flush(layout.root)
    _point(layout, layout.previous, previous)
    _point(layout, layout.current, current)
    flush(layout.root)


def _point(layout: Layout, link: Path, release: str | None) -> None:
    if release == read(link):
        return
    if release is None:
        link.unlink(missing_ok=True)
    else:
        temporary = link.with_name(f".{link.name}.new")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(layout.release(release), layout.root))
        os.rename(temporary, link)
    fsync_folder(layout.root)


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush(path: Path) -> None:
    """Make everything on the file system of `path` durable."""
    try:
        subprocess.run(["sync", "-f", str(path)], check=True, timeout=FLUSH)
    except subprocess.TimeoutExpired:
        raise UserError(f"the file system of {path} did not get its data to the disk within {FLUSH} s") from None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file `path` by `data`, whole or not at all; durable afterwards."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    fsync_folder(path.parent)
