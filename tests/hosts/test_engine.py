"""The whole road to a real host: SGLang's CPU engine, the series and a trained pair go there over SSH and serve under systemd.

One story on one host, since the engine is pushed once: two gigabytes, of which every later release gets only what is new.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import inputs, inventory, verbs
from tests.deploy.test_sandbox_engine import lossy
from tests.hosts import world
from tests.hosts.machines import Machine
from tools.paths import REPO

Fresh = Callable[..., Machine]

INVENTORY = """
[hosts.ct200]
transport = "ssh"
profile = "cpu"
pair = "qwen3-tiny"
root = "/opt/sglang"
port = 30000
count = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An inventory whose ct200 is the sandbox's entry twice, but for the way there. What the engine needs is fetched first: the
    hosts' network has no way out."""
    inputs.gather(inventory.load())
    flags = (REPO / "deploy" / "hosts.toml").read_text().split("[hosts.sandbox.server]")[1]
    made = tmp_path / "hosts.toml"
    made.write_text(INVENTORY + "\n[hosts.ct200.server]" + flags.replace("sandbox", "ct200"))
    return made


def command(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy", *words, "--host", "ct200", "--inventory", str(file), "--json"],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_engine_over_ssh(file: Path, fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = fresh("ct200")
    done = command(file, "apply")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    first = report["release"]
    assert report["release_served"] == first == world.current(machine)
    probes = [step for step in report["steps"] if step["step"] == "probe"]
    print({f"{step['step']} {step['instance'] or ''}": step["seconds"] for step in report["steps"]})
    assert [step["instance"] for step in probes] == ["engine1", "engine2"]
    assert all(re.fullmatch(r"8 of 8 probes equal, accept length [2-9]\.\d\d", step["detail"]) for step in probes)
    assert [world.served(machine, port) for port in (30000, 30001)] == [first, first]

    def pids() -> list[str]:
        return [machine.sh(f"systemctl show --property MainPID --value sglang@engine{number}") for number in (1, 2)]

    before = pids()
    begin = time.monotonic()
    again = command(file, "apply")
    print(f"second apply: {time.monotonic() - begin:.1f} s")
    assert json.loads(again.stdout)["summary"].startswith("nothing changes")
    assert pids() == before

    entry = inventory.load("ct200", file=file)
    host = verbs.connect(entry)
    good = inputs.gather(entry)
    size = machine.sh("du -sm /opt/sglang | cut -f1")
    assert verbs.apply(host, lossy(good, tmp_path / "lossy"), json=True) == 3
    assert world.current(machine) == first
    assert [world.served(machine, port) for port in (30000, 30001)] == [first, first]
    assert pids()[1] == before[1], "the other one served all the while"
    assert int(machine.sh("du -sm /opt/sglang | cut -f1")) - int(size) < 50, "only what differs travels"
    host.close()

    # One server of two ranks in place of the two.
    two = file.read_text().replace("count = 2\n", "").replace('\ndevice = "cpu"\n', '\ndevice = "cpu"\ntp = 2\n')
    file.write_text(two + '\n[hosts.ct200.environment]\nSGLANG_CPU_OMP_THREADS_BIND = "0|1"\n')
    done = command(file, "apply")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert world.current(machine) == report["release_served"] == world.served(machine) != first
    steps = {step["step"]: step["detail"] for step in report["steps"]}
    assert re.fullmatch(r"8 of 8 probes equal, accept length [2-9]\.\d\d", steps["probe"])
    assert "in 4 processes" in steps["prove"], "both ranks are proved"
    retired = machine.try_sh("systemctl is-active sglang@engine1 sglang@engine2").stdout.split()
    assert len(retired) == 2 and b"active" not in retired
