"""Stop, switch, start: the three steps that change what serves, in an order whose reverse brings the old release back.

Undone last first, they read: stop the new server, point `current` back, start the old server and wait for its health.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy import health
from deploy.host import Host
from deploy.steps import Step


@dataclass(frozen=True)
class Stop(Step):
    """Drain and end what runs. `fallback` is the release that serves again if the rollout fails."""

    name = "stop"
    disruptive = True
    running: str | None
    fallback: str | None
    drain: float

    def describe(self) -> str:
        if self.running is None:
            return "see that no server runs"
        return f"stop the server of release {self.running} (up to {self.drain:.0f} s for running requests)"

    def apply(self, host: Host) -> str:
        return "stopped" if host.stop() else "nothing ran"

    def undo(self, host: Host) -> str | None:
        if self.fallback is None:
            return None
        host.start(self.fallback)
        health.wait(host)
        return f"release {self.fallback} serves again"


@dataclass(frozen=True)
class Switch(Step):
    """Point `current` at the release. `before` and `previous` are the links' values to go back to."""

    name = "switch"
    disruptive = True
    release: str
    before: str | None
    previous: str | None

    def describe(self) -> str:
        if self.before is None:
            return f"point current at {self.release}"
        return f"point current at {self.release}, previous at {self.before}"

    def apply(self, host: Host) -> str:
        behind = self.before or self.previous
        host.switch(self.release, behind if behind != self.release else None)
        return f"current is {self.release}"

    def undo(self, host: Host) -> str | None:
        host.switch(self.before, self.previous if self.previous != self.before else None)
        return f"current is {self.before}" if self.before else "nothing is current"


@dataclass(frozen=True)
class Start(Step):
    """Start the release's server."""

    name = "start"
    disruptive = True
    release: str
    why: str = ""

    def describe(self) -> str:
        return f"start the server of release {self.release}{self.why and ': ' + self.why}"

    def apply(self, host: Host) -> str:
        return f"process {host.start(self.release).pid}"

    def undo(self, host: Host) -> str | None:
        return "the server is stopped" if host.stop() else None
