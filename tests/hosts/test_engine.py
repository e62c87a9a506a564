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
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An inventory whose ct200 is the sandbox's entry, but for the way there. What the engine needs is fetched first: the
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
    steps = {step["step"]: step for step in report["steps"]}
    print({name: step["seconds"] for name, step in steps.items()})
    assert re.fullmatch(r"8 of 8 probes equal, accept length [2-9]\.\d\d", steps["probe"]["detail"])
    pid = machine.sh("systemctl show --property MainPID --value sglang@engine")

    begin = time.monotonic()
    again = command(file, "apply")
    print(f"second apply: {time.monotonic() - begin:.1f} s")
    assert json.loads(again.stdout)["summary"].startswith("nothing changes")
    assert machine.sh("systemctl show --property MainPID --value sglang@engine") == pid

    entry = inventory.load("ct200", file=file)
    host = verbs.connect(entry)
    good = inputs.gather(entry)
    before = machine.sh("du -sm /opt/sglang | cut -f1")
    assert verbs.apply(host, lossy(good, tmp_path / "lossy"), json=True) == 3
    assert world.current(machine) == first == world.served(machine)
    assert int(machine.sh("du -sm /opt/sglang | cut -f1")) - int(before) < 50, "only what differs travels"
    host.close()
