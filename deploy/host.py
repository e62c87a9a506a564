"""What a step may ask of a host. The sandbox implements it here; `remote` for a host over SSH, by an agent with the same verbs.

Every method is one bounded action, and does nothing if its effect is already there; so a second run mends what an
interrupted one left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from deploy.facts import Facts, Instance, Verdict
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.manifest import Manifest
from deploy.pairs import Probes
from deploy.proof import Attested


class Host(Protocol):
    """One host and its servers, each in a slot, by its name. Methods raise `UserError` for what they can't do."""

    entry: Entry
    #: Told bytes pushed and bytes in all, where something is pushed.
    progress: Callable[[int, int], None] | None
    #: Called now and then while something is waited for; what it raises ends the wait.
    poll: Callable[[], None]

    def endpoint(self, slot: str) -> str:
        """The server's address, for people."""

    def facts(self) -> Facts:
        """Everything that a plan depends on."""

    def hold(self, verb: str) -> AbstractContextManager[None]:
        """The host's lock, for a command that changes something."""

    def stage(self, inputs: Inputs) -> Manifest:
        """Lay out a release, unless it is there."""

    def manifest(self, release: str) -> Manifest:
        """What a whole release is made of."""

    def verify(self, release: str) -> None:
        """Check every file of a release that came from the series, the shims or the hook against its manifest."""

    def probes(self, release: str) -> Probes:
        """The probes of a release's semantic gate."""

    def switch(self, current: str | None, previous: str | None) -> None:
        """Point `current` and `previous`, atomically."""

    def start(self, slot: str, release: str) -> Instance:
        """Start a release's server in its slot, in which nothing may run, as soon as its GPUs' memory is free."""

    def stop(self, slot: str) -> bool:
        """Drain and end the server; False if nothing ran."""

    def retire(self, slot: str) -> bool:
        """Stop the server for good: the host does not start it again, and forgets the slot."""

    def instance(self, slot: str) -> Instance:
        """The server as its supervisor sees it."""

    def ask(self, slot: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any:
        """A question to the server, over HTTP; `NoAnswer` if there is none."""

    def attested(self, slot: str) -> tuple[Attested, ...]:
        """What the server's live processes loaded."""

    def log(self, slot: str, lines: int) -> list[str]:
        """The end of the server's log."""

    def judge(self, verdict: Verdict) -> None:
        """Keep what the gates said of a release."""

    def arm(self, silence: float) -> None:
        """Let the host go back by itself to its fallback if this side is not heard for `silence` seconds."""

    def confirm(self) -> None:
        """What runs now stays."""

    def prune(self, keep: int, spare: frozenset[str]) -> tuple[str, ...]:
        """Remove all releases but the `keep` newest and the spared; returns the removed ones."""

    def audit(self, event: dict[str, Any]) -> None:
        """Add to the host's audit log."""

    def root(self) -> Path:
        """Where everything lies, for messages."""
