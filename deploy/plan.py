"""Facts in, steps out. Pure: no step is chosen anywhere else, and none is left out in silence.

A plan that would change nothing still looks: each running server must be the current release, and healthy. Only one that
isn't is started again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deploy import diff, preflight
from deploy.facts import Facts
from deploy.inputs import Inputs, texts
from deploy.inventory import Entry
from deploy.layout import Layout
from deploy.slot import Slot, words
from deploy.steps import Step
from deploy.steps.gates import Health, Probe, Prove
from deploy.steps.guard import Confirm, Guard
from deploy.steps.keep import Prune
from deploy.steps.serve import Retire, Settle, Start, Stop, Switch
from deploy.steps.stage import Check, Stage
from tools.cli import UserError


@dataclass(frozen=True)
class Plan:
    """Steps, in order, to make `release` serve. `fallback` serves again if they fail; None: there is nothing to go back to."""

    release: str
    summary: str
    steps: tuple[Step, ...]
    fallback: str | None
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything that serves is touched."""
        return any(step.disruptive for step in self.steps)


def apply(inputs: Inputs, facts: Facts) -> Plan:
    """The plan that makes the release of `inputs` serve."""
    refuse(inputs.entry, facts)
    entry, release = inputs.entry, inputs.release
    if facts.current == release and facts.proved(release) and release in facts.releases:
        return _keep(entry, release, facts)
    fallback = facts.fallback if facts.fallback != release else None
    staged = release in facts.releases
    steps: list[Step] = [Check(release) if staged else Stage(inputs, _differences(inputs, facts))]
    steps += _roll(entry, release, entry.slots, facts, fallback)
    steps += [Prune(entry.keep, frozenset(filter(None, (release, fallback))))]
    return Plan(release, _headline(release, facts, staged, fallback), tuple(steps), fallback, preflight.warnings(facts.gpus))


def rollback(entry: Entry, facts: Facts, to: str | None) -> Plan:
    """The plan that goes back to `to`, or to the previous release, with the slots that it had: through the same gates."""
    refuse(entry, facts)
    release = to or facts.previous
    if release is None:
        raise UserError("there is no previous release to go back to")
    if release not in facts.releases:
        raise UserError(f"there is no whole release {release}; there are: {', '.join(facts.releases) or 'none'}")
    if release == facts.current:
        return _keep(entry, release, facts)
    fallback = facts.fallback if facts.fallback != release else None
    steps = [Check(release), *_roll(entry, release, facts.topologies[release], facts, fallback)]
    return Plan(release, f"back to release {release}", tuple(steps), fallback, preflight.warnings(facts.gpus))


def refuse(entry: Entry, facts: Facts) -> None:
    """Nothing is begun while somebody else holds a server's port, or without a GPU that is wanted."""
    if facts.stranger:
        raise UserError(facts.stranger)
    preflight.require(entry, facts.gpus)


def _keep(entry: Entry, release: str, facts: Facts) -> Plan:
    """The current release stays; each of its servers is looked at, or started again, and no other one runs."""
    slots = facts.topologies[release]
    steps: list[Step] = []
    again: list[str] = []
    for name in sorted(facts.instances.keys() - {slot.name for slot in slots}):
        steps.append(Retire(name, facts.instance(name).release, None, entry.limits.drain))
        again.append(f"{words(name)} is stopped for good, it is not in the topology")
    for slot in slots:
        running = facts.instance(slot.name)
        prove = Prove(slot.name, release)
        if running.live and running.release == release:
            steps += [Health(slot.name, entry.limits.start, live=True), prove]
            continue
        why = "it ended" + (f" ({running.exit})" if running.exit else "") if not running.running else "it does not answer"
        if running.state == "stopped" and running.exit is None:
            why = "it was not running"
        if running.running and running.release != release:
            why = f"release {running.release} serves instead"
        if running.running:
            steps.append(Stop(slot.name, running.release, None, entry.limits.drain))
        steps += [Start(slot.name, release, True, why), Health(slot.name, entry.limits.start), prove, Probe(slot.name, release)]
        again.append(f"{words(slot.name)} of {release} is started again, {why}")
    if not again:
        said = f"nothing changes: release {release} is current and serves"
    else:
        said, steps = f"no new release: {'; '.join(again)}", [Check(release), *steps]
    return Plan(release, said, tuple(steps), None, preflight.warnings(facts.gpus))


def _roll(entry: Entry, release: str, wanted: tuple[Slot, ...], facts: Facts, fallback: str | None) -> list[Step]:
    """From what runs to the release's servers, one after the other: the next is touched when this one passed its gates."""
    had = {slot.name: slot for slot in facts.topologies.get(fallback or "", ())}
    names = [slot.name for slot in wanted]
    there: dict[str, Slot | None] = {name: _slot(facts, name) for name in facts.instances} | had
    steps: list[Step] = [Guard(entry.limits.silence, fallback)] if entry.remote else []
    if fallback and facts.current != fallback:
        steps.append(Settle(fallback, facts.previous))

    def end(name: str) -> None:
        there.pop(name)
        running = facts.instance(name)
        back = fallback if name in had else None
        step = Stop if name in names else Retire
        if running.running or back or step is Retire:
            steps.append(step(name, running.release if running.running else None, back, entry.limits.drain))

    for slot in wanted:
        for name in [name for name, other in there.items() if other is None or slot.clashes(other)]:
            end(name)
        steps += [Start(slot.name, release, slot.name in had), Health(slot.name, entry.limits.start)]
        steps += [Prove(slot.name, release), Probe(slot.name, release, _floor(entry, slot, facts, fallback))]
    for name in list(there):
        end(name)
    return [*steps, Switch(release, fallback, facts.previous), *([Confirm()] if entry.remote else [])]


def _differences(inputs: Inputs, facts: Facts) -> tuple[str, ...]:
    if facts.current not in facts.releases:
        return ()
    new = texts(inputs, Layout(inputs.entry.root.resolve()))
    return tuple(diff.lines(facts.current, facts.texts, facts.inputs, inputs.release, new, inputs.digests))


def _floor(entry: Entry, slot: Slot, facts: Facts, before: str | None) -> float | None:
    """The tokens/s that a server must reach: a share of the release before's, if that had servers on as many GPUs."""
    verdict = facts.verdicts.get(before or "")
    alike = any(slot.tp == other.tp for other in facts.topologies.get(before or "", ()))
    return entry.limits.speed_floor * verdict.tokens_per_second if verdict and verdict.tokens_per_second and alike else None


def _slot(facts: Facts, name: str) -> Slot | None:
    """The slot as the release that runs there has it; None if that release is gone."""
    slots = facts.topologies.get(facts.instance(name).release or "", ())
    return next((slot for slot in slots if slot.name == name), None)


def _headline(release: str, facts: Facts, staged: bool, fallback: str | None) -> str:
    kind = "staged" if staged else "new"
    said = facts.verdicts.get(release)
    again = f"; it was refused before ({said.why})" if said and not said.proved else ""
    after = f"in place of {fallback}" if fallback else "the first that serves here"
    return f"{kind} release {release}, {after}{again}"


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as a document for machines."""
    return {
        "release": plan.release,
        "summary": plan.summary,
        "changes": plan.changes,
        "restarts": [step.instance for step in plan.steps if isinstance(step, Start)],
        "fallback": plan.fallback,
        "warnings": list(plan.warnings),
        "steps": [
            {
                "name": step.name,
                "instance": step.instance,
                "does": step.describe(),
                "details": [line.strip() for line in step.details()],
            }
            for step in plan.steps
        ],
    }
