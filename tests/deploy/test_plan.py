"""Facts in, steps out: each case of `plans/*.json` is one state of a host and the plan that it must give.

In a case, NEW stands for the release of the inputs that `apply` is given.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy import plan
from deploy.facts import Facts, Instance, Verdict
from tests.deploy import world
from tools.cli import UserError

CASES = sorted(Path(__file__).with_name("plans").glob("*.json"))


def facts_of(raw: dict) -> Facts:
    """The facts of a case."""
    given = dict(raw)
    proved = {name: Verdict(name, ok, "said so", 0.0) for name, ok in given.pop("proved", {}).items()}
    return Facts(
        verdicts=proved,
        instance=Instance(**given.pop("instance", {})),
        releases=tuple(given.pop("releases", ())),
        **given,
    )


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_a_plan(tmp_path: Path, case: Path) -> None:
    entry = world.make_entry(tmp_path)
    wanted = world.make_inputs(tmp_path, entry)
    raw = json.loads(case.read_text().replace("NEW", wanted.release))
    facts = facts_of(raw["facts"])

    def make() -> plan.Plan:
        return plan.rollback(entry, facts, raw.get("to")) if raw["verb"] == "rollback" else plan.apply(wanted, facts)

    if "refused" in raw:
        with pytest.raises(UserError, match=raw["refused"]):
            make()
        return
    made = make()
    named = plan.as_json(made)
    assert [step["name"] for step in named["steps"]] == raw["steps"]
    assert raw["says"] in named["summary"]
    assert (named["fallback"], named["restarts"]) == (raw["fallback"], raw["restarts"])
    assert raw.get("does") in [None, *(step["does"] for step in named["steps"])]


def test_there_are_cases() -> None:
    assert len(CASES) >= 12
