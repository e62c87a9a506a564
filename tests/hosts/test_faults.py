"""What goes wrong between here and a host, one fault a test. Each time: `current` is a whole release, the message says what and
where, the exit code is the documented one, and a second apply mends it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import plan as plans
from deploy import rollout, show, verbs
from deploy.remote import Remote
from tests.hosts import world
from tests.hosts.linkproxy import LinkProxy
from tests.hosts.machines import Machine
from tools.cli import UserError
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


def through(machine: Machine, link: LinkProxy) -> dict:
    """Keys of an entry that goes through the link."""
    known = Path(os.environ["HOME"], ".ssh/known_hosts")
    key = machine.known_hosts.split(" ", 1)[1]
    known.write_text(f"[127.0.0.1]:{link.address[1]} {key}" + known.read_text())
    return {"address": "127.0.0.1", "ssh_port": link.address[1], "user": "root", "identity": str(machine.site.key)}


def test_the_link_breaks_while_files_travel(machine: Machine, tmp_path: Path) -> None:
    """Ten breaks at random places, the last of them at a big file; what came stays, and the next attempt goes on from there."""
    chance = random.Random(5)
    old = world.make_entry(machine)
    assert verbs.apply(verbs.connect(old), world.make_inputs(tmp_path, old), json=True) == 0
    before = world.current(machine)
    (tmp_path / "shims/big").write_bytes(chance.randbytes(24 << 20))
    sent = []
    for _ in range(10):
        with LinkProxy((machine.address, 22)) as link:
            entry = world.make_entry(machine, **through(machine, link))
            wanted = world.make_inputs(tmp_path, entry, ACCEPT=2)
            host = Remote(entry)
            with host.hold("apply"):
                made = plans.apply(wanted, host.facts())
                link.breaks("up", chance.randrange(1 << 16, 2 << 20), chance.choice(["rst", "fin"]))
                recap = rollout.run(made, host, show.Steps(host))
            sent.append(link.passed["up"])
            assert recap.ending is rollout.Ending.REFUSED and "stage: ct200: " in recap.failure, recap
            assert link.broken and "the connection was lost" in recap.failure
        assert world.current(machine) == before == world.served(machine)
    assert int(machine.sh("cat /opt/sglang/store/.part-* | wc -c")) > 1 << 20, "parts are kept"
    mended(machine, tmp_path, {"ACCEPT": 2})


def test_the_link_breaks_after_the_push(machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten breaks at random bytes of what is said after the push. The connection is made anew to take back what was done."""
    chance = random.Random(6)
    old = world.make_entry(machine)
    first = world.make_inputs(tmp_path, old)
    assert verbs.apply(verbs.connect(old), first, json=True) == 0
    broken = []
    said = {"up": 40_000, "down": 3_000}  # bytes, at least; the agent itself goes up again for the fresh connection
    for number in range(10):
        with LinkProxy((machine.address, 22)) as link:
            entry = world.make_entry(machine, **through(machine, link))
            wanted = world.make_inputs(tmp_path, entry, ACCEPT=2)
            host = Remote(entry)
            host.stage(wanted)
            with host.hold("apply"):
                made = plans.apply(wanted, host.facts())
                way = ("up", "down")[number % 2]
                link.breaks(way, chance.randrange(said[way]), chance.choice(["rst", "fin"]))
                recap = rollout.run(made, host, show.Steps(host))
            host.close()
            assert link.broken, (way, link.passed)
        broken.append(f"{way}: {recap.failure or recap.rows[-1].step}")
        serves = wanted.release if recap.ending is rollout.Ending.DONE else first.release
        assert recap.ending in (rollout.Ending.REFUSED, rollout.Ending.ROLLED_BACK), recap
        assert "ct200: the connection was lost during " in recap.failure
        assert world.current(machine) == serves == world.served(machine), recap
        assert not machine.sh("ls /opt/sglang/pending.json 2>/dev/null || true")
    print(*broken, sep="\n")
    mended(machine, tmp_path, {"ACCEPT": 2})


CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import verbs
from tests.deploy.world import die_after
from tests.hosts import world
class Named: name = "ct200"
entry = world.make_entry(Named)
wanted = world.make_inputs(Path({folder!r}), entry, ACCEPT=2)
die_after({steps})
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
    names = ["stage", "guard", "stop", "start", "health", "prove", "probe", "switch", "confirm"]
    for name in ("stage", "guard", "switch", "health", "confirm"):  # the others leave what one of these leaves
        killed(machine, tmp_path, names.index(name) + 1)
        if name in ("stage", "confirm"):
            assert not machine.sh("ls /opt/sglang/pending.json 2>/dev/null || true")
            assert world.current(machine) == (old.release if name == "stage" else new.release)
        else:
            machine.wait_for("test ! -e /opt/sglang/pending.json", 120)
            assert world.current(machine) == old.release == world.served(machine), f"killed after {name}"
    mended(machine, tmp_path, {"ACCEPT": 2})


def test_two_deployers_and_a_lock_that_is_taken_away(machine: Machine, tmp_path: Path) -> None:
    entry = world.make_entry(machine)
    one, two = verbs.connect(entry), verbs.connect(entry)
    wanted = world.make_inputs(tmp_path, entry)
    with one.hold("apply"):
        said = rf"ct200: `apply` of .* \(process {os.getpid()}\) works on this host since"
        with pytest.raises(UserError, match=said) as refused:
            verbs.apply(two, wanted, json=True)
        assert refused.value.code == 1 and world.current(machine) is None
        assert "`apply` of" in two.unlock()
    assert verbs.apply(two, wanted, json=True) == 0
    assert two.unlock() is None
    two.close()


def test_hosts_that_are_not_who_they_were(machine: Machine, tmp_path: Path) -> None:
    entry = world.make_entry(machine)
    known = Path(os.environ["HOME"], ".ssh/known_hosts")
    trusted = known.read_text()
    known.write_text("")
    with pytest.raises(UserError, match="is not in known_hosts, so it is not trusted"):
        verbs.connect(entry).facts()
    known.write_text(trusted)
    machine.new_host_key()
    machine.kill()
    machine.boot()
    with pytest.raises(UserError, match=r"the host key of .* has changed") as refused:
        verbs.connect(entry).facts()
    assert refused.value.code == 1
    known.write_text(machine.known_hosts)
    mended(machine, tmp_path, {})


def test_a_port_that_is_taken(machine: Machine, tmp_path: Path) -> None:
    machine.sh("systemd-run --quiet --unit=other python3 -m http.server 30000 --bind 127.0.0.1")
    machine.wait_for("ss -ltn | grep -q :30000")
    entry = world.make_entry(machine)
    host = verbs.connect(entry)
    with pytest.raises(UserError, match=r"port 30000 is held by process \d+ \(.*http\.server") as refused:
        verbs.apply(host, world.make_inputs(tmp_path, entry), json=True)
    assert refused.value.code == 1 and world.current(machine) is None
    host.close()
    machine.sh("systemctl stop other")
    mended(machine, tmp_path, {})
