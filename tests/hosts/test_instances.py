"""Several servers on one host under systemd: one after the other, back all together, and a topology that changes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import verbs
from deploy.slot import Slot
from tests.deploy.world import slots
from tests.hosts import world
from tests.hosts.machines import Machine
from tools.paths import REPO

Fresh = Callable[..., Machine]
#: What two servers say that they are, looked at from the host itself every tenth of a second.
WATCH = """
import json, sys, time, urllib.request
while True:
    said = []
    for port in (30000, 30001):
        try:
            said.append(json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/model_info", timeout=1))["weight_version"])
        except OSError:
            said.append(None)
    print(json.dumps(said), flush=True)
    time.sleep(0.1)
"""

#: An apply that is killed when it has stopped the first server for good and started another in its place.
CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import verbs
from deploy.slot import Slot
from tests.deploy.world import die_after
from tests.hosts import world
class Named: name = "ct200"
entry = world.make_entry(Named, slots={slots!r})
wanted = world.make_inputs(Path({folder!r}), entry, ACCEPT=3)
die_after(["stage", "guard", "retire", "start"].index("start") + 1)
sys.exit(verbs.apply(verbs.connect(entry), wanted, json=True))
"""


@contextmanager
def watched(machine: Machine) -> Iterator[list[tuple[str | None, str | None]]]:
    """What both servers served, look after look; filled when the block ends."""
    seen: list[tuple[str | None, str | None]] = []
    machine.sh("cat > /root/watch.py", input=WATCH.encode())
    machine.sh("systemd-run --quiet --unit=watcher --property=StandardOutput=truncate:/root/seen python3 /root/watch.py")
    yield seen
    machine.sh("systemctl stop watcher")
    seen += [tuple(json.loads(line)) for line in machine.sh("cat /root/seen").splitlines()]


def units(machine: Machine, state: str) -> list[str]:
    """The servers whose unit is in that state."""
    listed = machine.sh(f"systemctl list-units --all --plain --no-legend --state={state} 'sglang@*' | cut -d' ' -f1")
    return [name.removeprefix("sglang@").removesuffix(".service") for name in listed.split()]


def test_one_after_the_other_and_all_back(fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = fresh()
    two = slots("one", "two", port=30000)
    entry = world.make_entry(machine, slots=two)
    host = verbs.connect(entry)

    def said() -> dict:
        return json.loads(capsys.readouterr().out)

    old, new = world.make_inputs(tmp_path, entry), world.make_inputs(tmp_path, entry, ACCEPT=2)
    assert verbs.apply(host, old, json=True) == 0, capsys.readouterr()
    assert units(machine, "running") == ["one", "two"]
    environment = machine.sh("cat /opt/sglang/instances/two/env/two.env")
    assert "SGLANG_ATTEST_DIR=/opt/sglang/run/two/attest" in environment
    capsys.readouterr()

    # A first server that is wrong: the second is not touched, and answers all the while.
    pid = machine.sh("systemctl show --property MainPID --value sglang@two")
    with watched(machine) as seen:
        assert verbs.apply(host, world.make_inputs(tmp_path, entry, LOSSY=True), json=True) == 3
    assert {two for _, two in seen} == {old.release}
    assert machine.sh("systemctl show --property MainPID --value sglang@two") == pid
    capsys.readouterr()

    # A second server that is wrong: both go back, and there is always one that answers.
    with watched(machine) as seen:
        assert verbs.apply(host, world.make_inputs(tmp_path, entry, CRASH_ON=30001), json=True) == 3
    report = said()
    assert report["failure"].startswith("health two: ") and report["ending"] == "rolled back", report
    assert any("this build crashes" in line for line in report["log"])
    assert world.current(machine) == old.release
    assert [world.served(machine, port) for port in (30000, 30001)] == [old.release, old.release]
    assert (None, None) not in seen

    # A good one: the second server is the old release until the first one is the new.
    with watched(machine) as seen:
        assert verbs.apply(host, new, json=True) == 0
    assert all(one == new.release for one, two in seen if two != old.release)
    assert (new.release, old.release) in seen and seen[-1] == (new.release, new.release)
    assert world.current(machine) == new.release
    capsys.readouterr()

    # Another topology: what is not in it is stopped for good.
    other = (Slot("three", 30000, 31000), Slot("two", 30001, 31001), Slot("four", 30002, 31002))
    changed = world.make_entry(machine, slots=other)
    third = world.make_inputs(tmp_path, changed, ACCEPT=2)
    assert verbs.apply(verbs.connect(changed), third, json=True) == 0
    assert "retire one" in [f"{step['step']} {step['instance']}" for step in said()["steps"]]
    assert units(machine, "running") == ["four", "three", "two"]
    assert machine.try_sh("systemctl is-enabled sglang@one").stdout == b"disabled\n"
    assert machine.sh("ls /opt/sglang/instances").split() == ["four", "three", "two"]
    again = verbs.connect(changed)
    assert verbs.apply(again, third, json=True) == 0
    assert said()["summary"].startswith("nothing changes")

    # And back, with the servers that the release had; also when the controller is never heard of again.
    assert verbs.rollback(again, None, json=True) == 0
    assert units(machine, "running") == ["one", "two"] and world.current(machine) == new.release
    code = CONTROLLER.format(repo=str(REPO), folder=str(tmp_path), slots=other)
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert units(machine, "running") == ["three", "two"]
    machine.wait_for("test ! -e /opt/sglang/pending.json", 120)
    assert units(machine, "running") == ["one", "two"] and world.current(machine) == new.release
    assert machine.sh("ls /opt/sglang/instances").split() == ["one", "two"]
