"""What a plan says that a new release changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from deploy import diff, plan, staging
from deploy.inputs import Inputs
from deploy.layout import Layout
from deploy.sandbox import Sandbox
from tests.deploy import world


def test_lines() -> None:
    old = {"env/a.env": "PATH=/r/r1/bin\nX=1\n", "units/a": "exec python --port 1 --tp-size 1\n", "units/b": ""}
    new = {
        "env/a.env": "PATH=/r/r2/bin\nX=1\nA_TOKEN=hush\nY=2\n",
        "units/a": "exec python --port 1 --tp-size 2\n",
        "units/c": "",
    }
    assert diff.lines("r1", old, {"series": "1", "hook": "1"}, "r2", new, {"series": "2", "hook": "1"}) == [
        "differs from r1 in: series",
        "env/a.env",
        "  +A_TOKEN=...",
        "  +Y=2",
        "units/a",
        "  ---tp-size 1",
        "  +--tp-size 2",
        "units/b: no longer",
        "units/c: new",
    ]


def test_a_plan_shows_what_units_and_environment_become(host: Sandbox, layout: Layout, inputs_of: Callable[..., Inputs]) -> None:
    first = inputs_of()
    staging.stage(first, layout)
    host.switch(first.release, None)
    slots = (*world.slots("engine", port=first.entry.port), *world.slots("second"))
    entry = dataclasses.replace(first.entry, slots=slots, environment=(("MORE", "yes"),))
    second = world.make_inputs(layout.root.parent, entry, LOSSY=True)
    (stage, *_) = plan.apply(second, host.facts()).steps
    said = stage.details()
    assert f"differs from {first.release} in: arguments, series" in said
    assert said[said.index("env/engine.env") + 1] == "  +MORE=yes"
    assert {"env/second.env: new", "units/second.json: new"} <= set(said)
    assert not any(first.release in line for line in said if "differs" not in line), "paths that only the id changes are left out"
