"""Facts in, steps out. Pure: no step is chosen anywhere else, and none is left out in silence.

A plan that would change nothing still looks: the running server must be the current release, and healthy. It only falls to
a restart if it isn't.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deploy.facts import Facts
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.steps import Step
from deploy.steps.gates import Health, Probe, Prove
from deploy.steps.guard import Confirm, Guard
from deploy.steps.keep import Prune
from deploy.steps.serve import Start, Stop, Switch
from deploy.steps.stage import Check, Stage
from tools.cli import UserError


@dataclass(frozen=True)
class Plan:
    """Steps, in order, to make `release` serve. `fallback` serves again if they fail; None: there is nothing to go back to."""

    release: str
    summary: str
    steps: tuple[Step, ...]
    fallback: str | None

    @property
    def changes(self) -> bool:
        """Whether anything that serves is touched."""
        return any(step.disruptive for step in self.steps)


def apply(inputs: Inputs, facts: Facts) -> Plan:
    """The plan that makes the release of `inputs` serve."""
    refuse_stranger(facts)
    entry, release = inputs.entry, inputs.release
    if facts.current == release and facts.proved(release) and release in facts.releases:
        return _keep(entry, release, facts)
    fallback = facts.fallback if facts.fallback != release else None
    staged = release in facts.releases
    steps: list[Step] = [Check(release) if staged else Stage(inputs)]
    steps += _serve(entry, release, facts, fallback)
    steps += _gates(entry, release)
    steps += [Confirm()] if entry.remote else []
    steps += [Prune(entry.keep, frozenset(filter(None, (release, fallback))))]
    return Plan(release, _headline(release, facts, staged, fallback), tuple(steps), fallback)


def rollback(entry: Entry, facts: Facts, to: str | None) -> Plan:
    """The plan that goes back to `to`, or to the previous release: the same switch, through the same gates."""
    refuse_stranger(facts)
    release = to or facts.previous
    if release is None:
        raise UserError("there is no previous release to go back to")
    if release not in facts.releases:
        raise UserError(f"there is no whole release {release}; there are: {', '.join(facts.releases) or 'none'}")
    if release == facts.current:
        return _keep(entry, release, facts)
    fallback = facts.fallback if facts.fallback != release else None
    steps = [Check(release), *_serve(entry, release, facts, fallback), *_gates(entry, release)]
    steps += [Confirm()] if entry.remote else []
    return Plan(release, f"back to release {release}", tuple(steps), fallback)


def refuse_stranger(facts: Facts) -> None:
    """Nothing is begun while somebody else holds the server's port."""
    if facts.stranger:
        raise UserError(facts.stranger)


def _keep(entry: Entry, release: str, facts: Facts) -> Plan:
    """The current release stays; its server is looked at, or started again."""
    look = (Health(entry.limits.start), Prove(release))
    running = facts.instance
    if facts.live and running.release == release:
        return Plan(release, f"nothing changes: release {release} is current and serves", look, None)
    why = "it ended" + (f" ({running.exit})" if running.exit else "") if not running.running else "it does not answer"
    if running.state == "stopped" and running.exit is None:
        why = "it was not running"
    if running.running and running.release != release:
        why = f"release {running.release} serves instead"
    steps: list[Step] = [Check(release)]
    if running.running:
        steps.append(Stop(running.release, None, entry.limits.drain))
    steps += [Start(release, why), *look, Probe(release)]
    return Plan(release, f"no new release: the server of {release} is started again, {why}", tuple(steps), None)


def _serve(entry: Entry, release: str, facts: Facts, fallback: str | None) -> list[Step]:
    steps: list[Step] = [Guard(entry.limits.silence, fallback)] if entry.remote else []
    if facts.instance.running or fallback:
        steps.append(Stop(facts.instance.release if facts.instance.running else None, fallback, entry.limits.drain))
    return [*steps, Switch(release, fallback, facts.previous), Start(release)]


def _gates(entry: Entry, release: str) -> list[Step]:
    return [Health(entry.limits.start), Prove(release), Probe(release)]


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
        "restarts": any(isinstance(step, Start) for step in plan.steps),
        "fallback": plan.fallback,
        "steps": [
            {"name": step.name, "does": step.describe(), "details": [line.strip() for line in step.details()]}
            for step in plan.steps
        ],
    }
