"""A TCP link with a delay and a rate, that breaks after exactly so many bytes.

with LinkProxy(("10.77.0.10", 22)) as link:
    link.breaks("up", 5_000, "rst")     # once 5,000 more bytes have gone up; or "fin", or "silent"
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from typing import Self

_HOLDS = 256  # blocks on the way


class LinkProxy:
    """Connect to `address` instead of `to`. `delay`: seconds one way; `rate`: bytes a second each way, None: no limit."""

    def __init__(self, to: tuple[str, int], *, delay: float = 0.0, rate: float | None = None) -> None:
        self.to, self.delay, self.rate = to, delay, rate
        self.passed = {"up": 0, "down": 0}
        self.broken: str | None = None
        self.refuses = False  # new connections
        self._break: tuple[str, int, str] | None = None
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()

    def breaks(self, way: str, after: int, how: str, *, for_good: bool = False) -> None:
        """Break once `after` more bytes have passed `way`; `for_good`: nobody connects afterwards either."""
        self._break, self._for_good = (way, self.passed[way] + after, how), for_good

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._cut("rst")

    def _accept(self) -> None:
        while True:
            try:
                near = self._server.accept()[0]
            except OSError:
                return
            if self.refuses:
                near.close()
                continue
            far = socket.create_connection(self.to, 10)
            far.settimeout(None)
            for end, other, way in ((near, far, "up"), (far, near, "down")):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(end)
                blocks: queue.Queue[tuple[float, bytes]] = queue.Queue(_HOLDS)
                threading.Thread(target=self._read, args=(end, blocks, way), daemon=True).start()
                threading.Thread(target=self._write, args=(other, blocks), daemon=True).start()

    def _read(self, end: socket.socket, blocks: queue.Queue[tuple[float, bytes]], way: str) -> None:
        free = 0.0
        while True:
            try:
                block = end.recv(65536)
            except OSError:
                block = b""
            if self._break and self._break[0] == way and self.passed[way] + len(block) > self._break[1]:
                block, how = block[: self._break[1] - self.passed[way]], self._break[2]
                self._break, self.broken, self.refuses = None, how, self._for_good
                blocks.put((0, block))
                time.sleep(0.05)
                self._cut(how)
                return
            self.passed[way] += len(block)
            now = time.monotonic()
            free = max(free, now) + (len(block) / self.rate if self.rate else 0)
            blocks.put((free + self.delay, block))
            if not block:
                return

    def _write(self, end: socket.socket, blocks: queue.Queue[tuple[float, bytes]]) -> None:
        while True:
            when, block = blocks.get()
            time.sleep(max(0.0, when - time.monotonic()))
            try:
                if not block:
                    end.shutdown(socket.SHUT_WR)
                    return
                end.sendall(block)
            except OSError:
                return

    def _cut(self, how: str) -> None:
        ends, self._sockets = self._sockets, []
        for end in ends:
            with contextlib.suppress(OSError):
                if how == "rst":
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
