"""Facts in, steps out: each case of `plans/*.json` is one state of a host and the plan that it must give.

In a case, NEW stands for the release of the inputs that `apply` is given.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy import plan
from deploy.facts import Facts, Instance, Verdict
from deploy.slot import Slot
from tests.deploy import world
from tools.cli import UserError

CASES = sorted(Path(__file__).with_name("plans").glob("*.json"))


def slot_of(text: str) -> Slot:
    """`gpu2:2,3` is a server on two GPUs; no two share a port."""
    name, _, gpus = text.partition(":")
    numbers = tuple(int(gpu) for gpu in gpus.split(",") if gpu)
    port = 20000 + 100 * len(numbers) + sum(map(ord, name))
    return Slot(name, port, port + 1000, max(1, len(numbers)), numbers)


def facts_of(raw: dict) -> Facts:
    """The facts of a case.

    `instance` and `live` stand for a host's only server; `topologies` gives the slots of each release, if it is not that one.
    """
    given = dict(raw)
    single, live = given.pop("instance", None), given.pop("live", False)
    releases = tuple(given.pop("releases", ()))
    named = given.pop("topologies", {release: ["engine"] for release in releases})
    instances = {name: Instance(**one) for name, one in given.pop("instances", {}).items()}
    if single:
        instances["engine"] = Instance(**single, live=live)
    proved = {name: Verdict(name, ok, "said so", 0.0) for name, ok in given.pop("proved", {}).items()}
    return Facts(
        verdicts=proved,
        instances=instances,
        releases=releases,
        topologies={release: tuple(map(slot_of, slots)) for release, slots in named.items()},
        **given,
    )


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_a_plan(tmp_path: Path, case: Path) -> None:
    text = case.read_text()
    entry = world.make_entry(tmp_path, slots=tuple(map(slot_of, json.loads(text).get("slots", ["engine"]))))
    wanted = world.make_inputs(tmp_path, entry)
    raw = json.loads(text.replace("NEW", wanted.release))
    facts = facts_of(raw["facts"])

    def make() -> plan.Plan:
        return plan.rollback(entry, facts, raw.get("to")) if raw["verb"] == "rollback" else plan.apply(wanted, facts)

    if "refused" in raw:
        with pytest.raises(UserError, match=raw["refused"]):
            make()
        return
    made = make()
    named = plan.as_json(made)
    several = len(entry.slots) > 1
    said = [" ".join(filter(None, (step["name"], step["instance"] if several else None))) for step in named["steps"]]
    assert said == raw["steps"]
    assert raw["says"] in named["summary"]
    assert (named["fallback"], named["restarts"]) == (raw["fallback"], raw["restarts"])
    assert raw.get("does") in [None, *(step["does"] for step in named["steps"])]


def test_there_are_cases() -> None:
    assert len(CASES) >= 12
