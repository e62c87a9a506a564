"""Which servers are measured, and who starts them: the deployer's own parts, with nothing changed but the speculation.

* The sandbox: one server after the other in a root and on a port of the benchmark's own; what serves there goes on.
* A host: the server that serves there, as it is.
* A host that is taken over: its servers are drained, the benchmark's run one after the other in the first one's slot, then they
  are started again. If this side vanishes meanwhile, the host's own dead-man's switch brings them back.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deploy import health, ports
from deploy.host import Host
from deploy.inputs import Inputs
from deploy.inventory import NONE, Entry
from deploy.slot import single
from tools.errors import UserError
from tools.paths import CACHE

#: How far the benchmark's own port on this machine is from the entry's: above it, or below where there is no room.
APART = 500


@dataclass(frozen=True)
class Setting:
    """An algorithm, and for DDTREE its budget."""

    algorithm: str
    budget: int | None = None

    def of(self, entry: Entry) -> Entry:
        """The entry with this speculation, in its first slot alone, and with no other change."""
        return dataclasses.replace(entry, algorithm=self.algorithm, budget=self.budget or entry.budget, slots=entry.slots[:1])

    def __str__(self) -> str:
        plain = "no speculation" if self.algorithm == NONE else self.algorithm
        return f"{plain}({self.budget})" if self.budget else plain


@dataclass(frozen=True)
class Served:
    """A server that is healthy, in its slot."""

    host: Host
    slot: str
    release: str
    arguments: tuple[str, ...]
    start: float | None  # seconds until it was healthy; None: it ran already

    def ask(self, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any:
        """A question, as `measure` asks it."""
        return self.host.ask(self.slot, path, body, timeout=timeout)


def settings(budgets: Sequence[int]) -> list[Setting]:
    """No speculation, DFLASH, and DDTREE with each budget."""
    return [Setting(NONE), Setting("DFLASH"), *(Setting("DDTREE", budget) for budget in budgets)]


def own(entry: Entry) -> Entry:
    """The entry of the benchmark's own servers on this machine."""
    port = entry.port + (APART if entry.port + APART <= ports.HIGHEST else -APART)
    return dataclasses.replace(entry, root=CACHE / "bench" / "root", slots=(single(port, entry.slots[0].tp),))


@contextlib.contextmanager
def turn(host: Host) -> Iterator[Callable[[Inputs], Served]]:
    """Lets releases serve on `host` one after the other: call what it gives with inputs. What served before serves again after.

    Raises UserError, before anything is touched, if the host has something that could not be brought back.
    """
    with host.hold("bench"):
        facts = host.facts()
        if facts.stranger:
            raise UserError(facts.stranger)
        # Where nothing is current, whatever runs is what an interrupted benchmark left.
        before = facts.fallback if facts.current and facts.running else None
        if facts.current and facts.running and not (before and facts.serves(before)):
            raise UserError(
                f"what runs on {host.entry.name} is not its proved current release, whole and live, so it could not be brought "
                f"back: `make apply HOST={host.entry.name}` or `make stop HOST={host.entry.name}` first"
            )
        slots = facts.running or (host.entry.slots[0].name,)
        made: set[str] = set()
        if before:
            host.arm(host.entry.limits.silence)
        try:
            yield lambda inputs: _serve(host, inputs, slots, made)
        finally:
            host.stop(host.entry.slots[0].name)
            if before:
                _bring_back(host, before, slots)
                host.confirm()
            # Where a release serves nothing is left of the benchmark; in its own root its last releases are, for the next time.
            host.prune(0, frozenset(facts.releases if facts.current else made))


def serving(host: Host) -> tuple[Setting, Served]:
    """The server that serves on `host` now; of several the first."""
    name = host.entry.name
    facts = host.facts()
    live = [(slot, instance) for slot, instance in facts.instances.items() if instance.live]
    if not live:
        raise UserError(f"no server answers on {name}: `make apply HOST={name}` first, or ALL=1 to start the benchmark's there")
    slot, instance = live[0]
    made = host.manifest(instance.release)
    setting = Setting(made.algorithm, made.budget if made.algorithm == "DDTREE" else None)
    return setting, Served(host, slot, instance.release, (), None)


def _serve(host: Host, inputs: Inputs, slots: Sequence[str], made: set[str]) -> Served:
    slot = inputs.entry.slots[0].name
    made.add(inputs.release)
    host.stage(inputs)
    for name in {slot, *slots}:
        host.stop(name)
    host.start(slot, inputs.release)
    try:
        start = health.wait(host, slot)
    except UserError as error:
        last = "\n".join(host.log(slot, 15))
        raise UserError(f"{inputs.entry.algorithm}: {error}; its log ends:\n{last}") from None
    return Served(host, slot, inputs.release, inputs.arguments, start)


def _bring_back(host: Host, release: str, slots: Sequence[str]) -> None:
    try:
        for slot in slots:
            host.stop(slot)
            host.start(slot, release)
            health.wait(host, slot)
    except UserError as error:
        said = f"{host.entry.name}: release {release} does not serve again after the benchmark: {error}"
        raise UserError(said, 4) from None
