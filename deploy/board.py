"""Many hosts' steps as they run: on a terminal one line a host, redrawn in place; elsewhere whole lines, each with its host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Self

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from deploy import show
from tools.cli import err


class Line:
    """One host's line. It is a `rollout.Watch`, and takes a host's `progress`."""

    def __init__(self, board: Board, host: str) -> None:
        self.host, self.says, self.since = host, "connecting", time.monotonic()
        self.sent, self.total, self.over = 0, 0, False
        self._board = board

    @contextlib.contextmanager
    def __call__(self, say: str) -> Iterator[None]:
        self.says, self.since, self.sent, self.total = say, time.monotonic(), 0, 0
        yield
        self._board.write(self.host, f"{say}: {show.pushed(self.sent)}{time.monotonic() - self.since:.1f} s")

    def pushed(self, sent: int, total: int) -> None:
        self.sent, self.total = sent, total

    def end(self, says: str) -> None:
        """The host is done with."""
        self.says, self.over = says, True
        self._board.write(self.host, says)


class Board:
    """All hosts' lines; it lives as long as its `with` block."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._lines = {host: Line(self, host) for host in hosts}
        self._live = Live(get_renderable=self._table, console=err, refresh_per_second=8) if err.is_terminal else None

    def line(self, host: str) -> Line:
        return self._lines[host]

    def write(self, host: str, text: str) -> None:
        """One whole line, where there is no terminal to redraw it on."""
        if self._live is None:
            err.print(f"{host}: {text}", markup=False)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for line in self._lines.values():
            bytes_ = f"{line.sent / 1e6:.1f} of {line.total / 1e6:.1f} MB pushed" if line.total and not line.over else ""
            seconds = "" if line.over else f"{time.monotonic() - line.since:.0f} s"
            table.add_row(f"[bold]{escape(line.host)}[/]", escape(line.says), bytes_, seconds)
        return table

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
