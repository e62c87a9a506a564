"""What goes wrong between here and a host, one fault a test. Each time: `current` is a whole release, the message says what and
where, the exit code is the documented one, and a second apply mends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import verbs
from tests.hosts import world
from tests.hosts.machines import Machine
from tools.paths import REPO

Fresh = Callable[..., Machine]


@pytest.fixture
def machine(fresh: Fresh) -> Machine:
    return fresh()


def mended(machine: Machine, folder: Path, wrong: dict) -> None:
    """A second apply, over an undisturbed link, makes the release serve."""
    entry = world.make_entry(machine)
    host = verbs.connect(entry)
    wanted = world.make_inputs(folder, entry, **wrong)
    assert verbs.apply(host, wanted, json=True) == 0
    assert world.current(machine) == wanted.release == world.served(machine)
    host.close()


CONTROLLER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import rollout, verbs
from deploy.inventory import Entry
from tests.hosts import world
class Named: name = "ct200"
entry = world.make_entry(Named)
wanted = world.make_inputs(Path({folder!r}), entry, ACCEPT=2)
left = {steps}
do = rollout._do
def dying(*args):
    global left
    error = do(*args)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return error
rollout._do = dying
sys.exit(verbs.apply(verbs.connect(entry), wanted, json=True))
"""


def killed(machine: Machine, folder: Path, steps: int) -> None:
    """An apply whose controller is killed after that many steps."""
    code = CONTROLLER.format(repo=str(REPO), folder=str(folder), steps=steps)
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_a_controller_that_is_killed_between_steps(machine: Machine, tmp_path: Path) -> None:
    entry = world.make_entry(machine)
    host = verbs.connect(entry)
    old, new = world.make_inputs(tmp_path, entry), world.make_inputs(tmp_path, entry, ACCEPT=2)
    assert verbs.apply(host, old, json=True) == 0
    names = ["stage", "guard", "stop", "switch", "start", "health", "prove", "probe", "confirm"]
    for name in ("stage", "guard", "switch", "health", "confirm"):  # the others leave what one of these leaves
        killed(machine, tmp_path, names.index(name) + 1)
        if name in ("stage", "confirm"):
            assert not machine.sh("ls /opt/sglang/pending.json 2>/dev/null || true")
            assert world.current(machine) == (old.release if name == "stage" else new.release)
        else:
            machine.wait_for("test ! -e /opt/sglang/pending.json", 120)
            assert world.current(machine) == old.release == world.served(machine), f"killed after {name}"
    mended(machine, tmp_path, {"ACCEPT": 2})
