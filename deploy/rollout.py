"""Runs a plan. It ends in one of four ways, each with its exit code: done, refused before any change, rolled back, stranded.

A failure undoes every step that was begun, last first. What counts as "rolled back" is seen, not assumed: the fallback's
servers are running and live again.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from deploy.facts import Verdict
from deploy.host import Host
from deploy.plan import Plan
from deploy.slot import ENGINE
from deploy.steps import Step, StepFailed
from deploy.steps.gates import Health, Probe, Prove
from deploy.steps.guard import Guard
from tools.cli import UserError
from tools.transport import Unreachable

#: Lines of the server's log kept with a failure.
TAIL = 25


class Ending(Enum):
    """How a rollout ended; the value is the exit code."""

    DONE = 0  # as planned, or nothing was to do
    REFUSED = 1  # failed before anything that serves was touched
    ROLLED_BACK = 3  # the old release serves again
    STRANDED = 4  # nothing, or not what should, serves: a person is needed


@dataclass(frozen=True)
class Row:
    """One line of the recap."""

    step: str
    instance: str | None  # the one that the step is about
    outcome: str  # ok, failed, undone, undo failed
    seconds: float
    detail: str


@dataclass
class Recap:
    """What a rollout did."""

    release: str
    summary: str
    ending: Ending = Ending.DONE
    rows: list[Row] = field(default_factory=list)
    failure: str | None = None
    note: str | None = None  # on a host that can't be asked
    log: list[str] = field(default_factory=list)  # the end of the failed server's log


#: Shows a step while it runs.
Watch = Callable[[str], AbstractContextManager[None]]


def run(plan: Plan, host: Host, watch: Watch) -> Recap:
    """Run the steps; on a failure undo them. Never raises for a step's failure, it is in the recap."""
    recap = Recap(plan.release, plan.summary)
    begun: list[Step] = []
    error: BaseException | None = None
    try:
        for step in plan.steps:
            begun.append(step)
            if error := _do(recap, step, "ok", lambda step=step: step.apply(host), watch, step.describe()):
                break
    except KeyboardInterrupt as between:  # two steps
        error = between
    if error:
        _fail(plan, host, recap, begun, error, watch)
    return recap


def as_json(recap: Recap) -> dict[str, Any]:
    """The recap as a document for machines."""
    return {
        "release": recap.release,
        "summary": recap.summary,
        "ending": recap.ending.name.lower().replace("_", " "),
        "exit": recap.ending.value,
        "failure": recap.failure,
        "note": recap.note,
        "log": recap.log,
        "steps": [vars(row) for row in recap.rows],
    }


def _fail(plan: Plan, host: Host, recap: Recap, begun: list[Step], error: BaseException, watch: Watch) -> None:
    at = begun[-1].instance
    recap.failure = f"{begun[-1].name}{f' {at}' if at not in (None, ENGINE) else ''}: {_reason(error)}"
    if not isinstance(error, (StepFailed, UserError, KeyboardInterrupt)):
        traceback.print_exception(error)  # a defect of ours: say where, and still bring the host back
    touched = any(step.disruptive for step in begun)
    with contextlib.suppress(UserError):  # a host that is gone: the steps below say so
        if touched and at:
            recap.log = host.log(at, TAIL)
        if isinstance(begun[-1], (Health, Prove, Probe)) and touched:
            host.judge(Verdict(plan.release, False, recap.failure, time.time()))
    whole = True
    for step in reversed(begun):
        if isinstance(step, Guard) and not whole:  # what could not be taken back from here is left to the host
            recap.note = f"the host itself {step.back} as soon as it can"
            continue
        say = f"undo: {step.name}{f' {step.instance}' if step.instance else ''}"
        whole &= _do(recap, step, "undone", lambda step=step: _take_back(step, host), watch, say) is None
    if not touched:
        recap.ending = Ending.REFUSED
    else:
        try:
            recap.ending = Ending.ROLLED_BACK if _serves(host, plan.fallback) else Ending.STRANDED
        except UserError as gone:
            recap.ending = Ending.STRANDED
            recap.note = f"the host can't be asked what serves ({gone})"
            guard = next((step for step in begun if isinstance(step, Guard)), None)
            if guard:
                recap.note += f"; unless it hears from here it {guard.back} by itself within about {guard.silence + 10:.0f} s"


def _take_back(step: Step, host: Host) -> str | None:
    """Undo a step; once more over a fresh connection, where only this showed that the one in hand was lost."""
    try:
        return step.undo(host)
    except Unreachable:
        return step.undo(host)


def _serves(host: Host, release: str | None) -> bool:
    return release is not None and host.facts().serves(release)


def _reason(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__


def _do(recap: Recap, step: Step, good: str, action: Callable[[], str | None], watch: Watch, say: str) -> BaseException | None:
    """Run one action and add its row; returns what went wrong."""
    begin, error, detail = time.monotonic(), None, None
    try:
        with watch(say):
            detail = action()
    except (Exception, KeyboardInterrupt) as caught:
        error, detail = caught, _reason(caught)
    outcome = good if error is None else "failed" if good == "ok" else "undo failed"
    if detail is not None:
        recap.rows.append(Row(step.name, step.instance, outcome, round(time.monotonic() - begin, 1), detail))
    return error
