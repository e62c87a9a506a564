"""Stop, start, retire, switch: the steps that change what serves, in an order whose reverse brings the old release back.

Each server goes through stop, start and its gates before the next is touched; `current` moves when all of them passed, so it
never names a release that was not proved. Undone last first, for each server they read: stop the new one, start the old one,
wait for its health.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy import health
from deploy.host import Host
from deploy.slot import words
from deploy.steps import Step


@dataclass(frozen=True)
class Stop(Step):
    """Drain and end what runs in a slot. `fallback` is the release that serves there again if the rollout fails."""

    name = "stop"
    disruptive = True
    slot: str
    running: str | None
    fallback: str | None
    drain: float

    def describe(self) -> str:
        if self.running is None:
            return "see that no server runs" if words(self.slot) == "the server" else f"see that {words(self.slot)} does not run"
        return f"stop {words(self.slot)} of release {self.running} (up to {self.drain:.0f} s for running requests)"

    def apply(self, host: Host) -> str:
        return "stopped" if host.stop(self.slot) else "nothing ran"

    def undo(self, host: Host) -> str | None:
        if self.fallback is None:
            return None
        host.start(self.slot, self.fallback)
        health.wait(host, self.slot)
        return f"release {self.fallback} serves again"


@dataclass(frozen=True)
class Retire(Stop):
    """The same for a slot that the new topology does not have."""

    name = "retire"

    def describe(self) -> str:
        return f"stop {words(self.slot)} for good: it is not in the topology (up to {self.drain:.0f} s for running requests)"

    def apply(self, host: Host) -> str:
        return "stopped and disabled" if host.retire(self.slot) else "disabled; nothing ran"


@dataclass(frozen=True)
class Start(Step):
    """Start the release's server in a slot. `stays`: the slot is there after a failure as well."""

    name = "start"
    disruptive = True
    slot: str
    release: str
    stays: bool
    why: str = ""

    def describe(self) -> str:
        return f"start {words(self.slot)} of release {self.release}{self.why and ': ' + self.why}"

    def apply(self, host: Host) -> str:
        return f"process {host.start(self.slot, self.release).pid}"

    def undo(self, host: Host) -> str | None:
        return "the server is stopped" if (host.stop if self.stays else host.retire)(self.slot) else None


@dataclass(frozen=True)
class Settle(Step):
    """Point `current` at the last release that was proved, which is what the host goes back to, before anything else."""

    name = "settle"
    release: str
    previous: str | None

    def describe(self) -> str:
        return f"point current back at {self.release}, the last that was proved"

    def apply(self, host: Host) -> str:
        host.switch(self.release, self.previous if self.previous != self.release else None)
        return f"current is {self.release}"


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
