"""What a host has, read in one go before anything is planned. Plain data: a plan is a function of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Instance:
    """One supervised server, as its supervisor tells it."""

    state: str = "stopped"  # stopped, running, backing-off, failed
    release: str | None = None
    pid: int | None = None  # of the server's first process
    since: float | None = None  # seconds since the epoch: start of this server process
    restarts: int = 0  # by the supervisor, since it was started
    exit: str | None = None  # how the last server process ended, in words

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
    instance: Instance = Instance()
    live: bool = False  # the instance answers its health endpoint
    stranger: str | None = None  # who holds the port, when it is not the instance

    def proved(self, release: str | None) -> bool:
        """Whether `release` once passed every gate on this host."""
        return release in self.verdicts and self.verdicts[release].proved

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
        "state": facts.instance.state,
        "live": facts.live,
        "serving": facts.instance.release,
        "pid": facts.instance.pid,
        "since": facts.instance.since,
        "restarts": facts.instance.restarts,
        "proved": facts.proved(facts.current),
        "accept_length": verdict.accept_length if verdict else None,
    }
