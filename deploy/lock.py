"""One change at a time on a host. The lock dies with its holder, so it is never stale; who waits is told who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tools.errors import UserError

#: Seconds for which another's lock must be seen.
PATIENCE = 1.0


def who() -> dict[str, object]:
    """This process, for the lock and the audit log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    return {"user": user, "machine": socket.gethostname(), "pid": os.getpid()}


@contextlib.contextmanager
def held(path: Path, verb: str, by: dict[str, object] | None = None) -> Iterator[None]:
    """Hold the lock for `verb`, in the name of `by` (default: this process); a `UserError` naming the holder if it is taken."""
    with _opened(path) as file:
        _take(file)
        file.truncate(0)
        file.write(json.dumps({**(by or who()), "verb": verb, "since": time.time()}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _opened(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "a+")
    except OSError as error:
        raise UserError(f"the lock {path} can't be taken: {error.strerror}") from None


def _take(file: TextIO) -> None:
    """Take the lock. Whoever asks who holds it holds it himself for a moment, so one refusal says nothing."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                file.seek(0)
                raise UserError(f"{_holder(file.read())}: wait for its end, or end it") from None
        time.sleep(0.01)


def holder(path: Path) -> dict | None:
    """Who holds the lock, as it wrote down; empty if it has not yet; None: nobody."""
    try:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return json.loads(file.read() or "{}")
    except FileNotFoundError:
        pass
    return None


def _holder(text: str) -> str:
    try:
        holder = json.loads(text)
    except ValueError:  # it has the lock, and has not written its name yet
        return "another command works on this host"
    since = time.strftime("%H:%M:%S", time.localtime(holder["since"]))
    return (
        f"`{holder['verb']}` of {holder['user']} on {holder['machine']} (process {holder['pid']}) "
        f"works on this host since {since}"
    )
