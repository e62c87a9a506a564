"""The power goes at every step boundary of an apply, and the disk loses what nobody asked it to keep. Each time `current` is a
whole release, which serves again by itself, and the next apply goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy import rollout, verbs
from deploy.host import Host
from deploy.inputs import Inputs
from tests.hosts import world
from tests.hosts.machines import Machine

Fresh = Callable[..., Machine]


class Cut(Exception):
    """The power went."""


def apply_until(last: str, machine: Machine, host: Host, wanted: Inputs, patch: pytest.MonkeyPatch) -> list[str]:
    """An apply that loses its host's power after that step; the names of those that were done. A staged release is checked."""
    do, done = rollout._do, []

    def cutting(recap: rollout.Recap, *more: Any) -> Any:
        error = do(recap, *more)
        assert error is None, error
        done.append(recap.rows[-1].step)
        if done[-1] == last:
            # What the kernel may do at any time, and whoever counts on an order is wrong: of all new files, this one is kept.
            machine.sh("for file in /opt/sglang/releases/*/manifest.json; do sync $file; done")
            machine.lose_power()
            host.close()
            raise Cut
        return error

    with patch.context() as patched:
        patched.setattr(rollout, "_do", cutting)
        with pytest.raises(Cut):
            verbs.apply(host, wanted, json=True)
    return done


def test_power_cuts(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fresh(disk=True)
    entry = world.make_entry(machine)
    releases = [world.make_inputs(tmp_path, entry, ACCEPT=accept) for accept in (3, 2, 6)]
    assert verbs.apply(verbs.connect(entry), releases[0], json=True) == 0
    old, new = releases[:2]
    for last in ("stage", "guard", "stop", "start", "probe", "switch", "confirm", "prune"):  # health and prove write nothing
        done = apply_until(last, machine, verbs.connect(entry), new, monkeypatch)
        stays = new if "confirm" in done else old
        assert world.current(machine) == stays.release, f"the power went after {done}"
        world.see_whole(machine)
        machine.wait_for(f"cd /opt/sglang && test ! -e pending.json && {world.answers()}")
        assert world.served(machine) == stays.release, f"the power went after {done}"
        if stays is new:
            old, new = new, releases[2]
    host = verbs.connect(entry)
    assert verbs.apply(host, releases[0], json=True) == 0
    host.close()
    assert world.current(machine) == releases[0].release == world.served(machine)
