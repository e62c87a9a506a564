"""What a host has, read in one go before anything is planned. Plain data: a plan is a function of it.

A host has slots, each with one server; `instances` is what is or was started in them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from deploy.gpus import Gpu
from deploy.slot import Slot


@dataclass(frozen=True)
class Instance:
    """One supervised server, as its supervisor tells it."""

    state: str = "stopped"  # stopped, running, backing-off, failed
    release: str | None = None
    pid: int | None = None  # of the server's first process
    since: float | None = None  # seconds since the epoch: start of this server process
    restarts: int = 0  # by the supervisor, since it was started
    exit: str | None = None  # how the last server process ended, in words
    live: bool = False  # it answers its health endpoint, if it was asked

    @property
    def running(self) -> bool:
        """Whether a supervisor holds it, healthy or not."""
        return self.state in ("running", "backing-off")


@dataclass(frozen=True)
class Verdict:
    """What the gates said of a release on this host."""

    release: str
    proved: bool
    why: str  # one sentence
    when: float  # seconds since the epoch
    accept_length: float | None = None  # tokens a verify step, over the probes
    tokens_per_second: float | None = None  # over the probes


@dataclass(frozen=True)
class Facts:
    """The host's state. `releases` holds whole releases only, newest first."""

    current: str | None = None
    previous: str | None = None
    releases: tuple[str, ...] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    topologies: dict[str, tuple[Slot, ...]] = field(default_factory=dict)  # whole release -> its slots
    instances: dict[str, Instance] = field(default_factory=dict)  # slot -> its server
    inputs: dict[str, str] = field(default_factory=dict)  # of the current release: input -> its digest
    texts: dict[str, str] = field(default_factory=dict)  # of the current release: files of units/ and env/ -> contents
    stranger: str | None = None  # who holds a wanted port, when it is not one of the instances
    gpus: tuple[Gpu, ...] = ()  # that are wanted

    def proved(self, release: str | None) -> bool:
        """Whether `release` once passed every gate on this host."""
        return release in self.verdicts and self.verdicts[release].proved

    def instance(self, slot: str) -> Instance:
        """The server in that slot."""
        return self.instances.get(slot, Instance())

    @property
    def running(self) -> tuple[str, ...]:
        """The slots in which something runs."""
        return tuple(name for name, instance in self.instances.items() if instance.running)

    def serves(self, release: str | None) -> bool:
        """Whether `release` is current, and every server of it live."""
        return release == self.current and all(
            self.instance(slot.name).release == release and self.instance(slot.name).live
            for slot in self.topologies.get(release or "", ())
        )

    @property
    def fallback(self) -> str | None:
        """The release to go back to: the current one, or the one before it while the current one is unproved."""
        for release in (self.current, self.previous):
            if release in self.releases and self.proved(release):
                return release
        return None


def as_json(facts: Facts) -> dict[str, Any]:
    """The facts as a document for machines."""
    verdict = facts.verdicts.get(facts.current or "")
    return {
        "current": facts.current,
        "previous": facts.previous,
        "releases": list(facts.releases),
        "serves": facts.current is not None and facts.serves(facts.current),
        "instances": [{"instance": name, **vars(instance)} for name, instance in facts.instances.items()],
        "proved": facts.proved(facts.current),
        "accept_length": verdict.accept_length if verdict else None,
        "gpus": [dataclasses.asdict(gpu) for gpu in facts.gpus],
    }
