"""Who listens on a TCP port of this machine, from /proc; no root needed to see that the port is taken."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from pathlib import Path

#: Ports that a server can have: SGLang takes the one 10,000 above for gRPC and does not start if there is none.
LOWEST, HIGHEST = 1024, 65535 - 10000

#: Seconds that the kernel gets to take a process apart: one with gigabytes on GPUs takes some.
ENDING = 30.0
_LISTEN = "0A"


def holder(port: int) -> tuple[int | None, str] | None:
    """The process that listens on `port`: its id (None if it is another user's) and its command. None: the port is free."""
    sockets = _listening(port)
    if not sockets:
        return None
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            for handle in (entry / "fd").iterdir():
                if os.readlink(handle) in sockets:
                    argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    return int(entry.name), " ".join(argv).strip()[:120]
        except OSError:
            continue  # gone meanwhile, or another user's
    return None, "a process of another user"


def settled(port: int) -> tuple[int | None, str] | None:
    """The same, but a process that is ending gets time to give the port back: its memory goes first, and its command with it."""
    end = time.monotonic() + ENDING
    while (found := holder(port)) and not found[1] and time.monotonic() < end:
        time.sleep(0.1)
    return found


def free() -> int:
    """A port that a server can have and that nobody listens on now.

    Below those that Linux gives to whoever asks for any: nobody gets it by chance until the server has started.
    """
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _listening(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            column = line.split()
            if column[3] == _LISTEN and int(column[1].rsplit(":", 1)[1], 16) == port:
                found.add(f"socket:[{column[9]}]")
    return found
