"""Eight real hosts at once: one recap, whole lines, and a host that fails or can't be reached hides none of the others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.hosts import world
from tests.hosts.machines import Machine
from tools.paths import REPO

Fresh = Callable[..., Machine]
NAMES = [f"gpu{number}" for number in range(8)]

HOST = """
[hosts.{name}]
transport = "ssh"
profile = "cpu"
pair = "pair"
root = "/opt/sglang"
port = 30000
limits = {{ start = 120, drain = 2, answer = 60, accept-min = 1.0, accept-max = 8.0, silence = 60 }}
"""

# The command line itself; only the engine is a stand-in.
CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import __main__ as command, inputs
from tests.hosts import world
from tools import cli
wrong = {wrong!r}
def gather_all(entries):
    made = {{
        entry.name: world.make_inputs(Path({folder!r}), entry, **wrong.get(entry.name, wrong.get("all", {{}})))
        for entry in entries
    }}
    return lambda entry: made[entry.name]
inputs.gather_all = gather_all
cli.run(command.main)
"""


def start(folder: Path, wrong: dict[str, dict], *words: str) -> subprocess.Popen[str]:
    code = CONTROLLER.format(repo=str(REPO), folder=str(folder), wrong=wrong)
    argv = [sys.executable, "-c", code, *words, "--inventory", str(folder / "hosts.toml")]
    return subprocess.Popen(argv, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def table(text: str) -> dict[str, list[str]]:
    """The recap: host -> its cells."""
    head, *lines = [re.split(r" {2,}", line) for line in text.splitlines()]
    assert head[0] == "host" and [line[0] for line in lines] == NAMES, text
    return {line[0]: line[1:] for line in lines}


def test_eight_hosts_at_once(fresh: Fresh, tmp_path: Path) -> None:
    machines = {name: fresh(name) for name in NAMES}
    groups = f"[groups]\nfirst = {json.dumps(NAMES[:4])}\n"
    (tmp_path / "hosts.toml").write_text(groups + "".join(HOST.format(name=name) for name in NAMES))
    known = Path(os.environ["HOME"], ".ssh/known_hosts")
    trusted = known.read_text()
    known.write_text(trusted.replace(machines["gpu2"].known_hosts, ""))
    every = ["--host", "first," + ",".join(NAMES[4:])]

    # One is not known, one has nothing to go back to.
    apply = start(tmp_path, {"gpu5": {"CRASH": True}}, "apply", *every)
    out, said = apply.communicate(timeout=300)
    assert apply.returncode == 4, out + said
    rows = table(out)
    assert rows["gpu2"][-1] == "failed" and set(rows["gpu2"][:-1]) == {"-"}
    assert rows["gpu5"][-1] == "NEEDS A PERSON" and any(cell.startswith("failed ") for cell in rows["gpu5"])
    good = [name for name in NAMES if name not in ("gpu2", "gpu5")]
    assert {rows[name][-1] for name in good} == {"done"}
    assert re.search(r"^gpu2: .* is not in known_hosts, so it is not trusted", said, re.MULTILINE)
    assert re.search(r"^gpu5: health: .*ended while it started \(exit status 1\)", said, re.MULTILINE)
    assert not [line for line in said.splitlines() if not re.match(r"gpu\d: \S|  \| ", line)], said
    assert re.search(r"^gpu0: lay out release \w+: \d+\.\d MB pushed, \d+\.\d s$", said, re.MULTILINE)
    assert all(world.current(machines[name]) == world.served(machines[name]) for name in good)

    # Both are mended; on the others nothing restarts.
    known.write_text(trusted)
    pid = machines["gpu0"].sh("systemctl show --property MainPID --value sglang@engine")
    again = start(tmp_path, {}, "apply", *every, "--json")
    out, said = again.communicate(timeout=300)
    assert again.returncode == 0, out + said
    document = json.loads(out)
    assert document["exit"] == 0 and [host["host"] for host in document["hosts"]] == NAMES
    assert [host["host"] for host in document["hosts"] if host["summary"].startswith("nothing changes")] == good
    assert machines["gpu0"].sh("systemctl show --property MainPID --value sglang@engine") == pid
    release = {host["host"]: host["release"] for host in document["hosts"]}

    # ^C while no new server has passed its gates: each host has its old release again, and it is said.
    mute = start(tmp_path, {"all": {"MUTE": True}}, "apply", *every)
    lines, started = [], set()
    while len(started) < len(NAMES):
        lines.append(mute.stderr.readline())
        assert lines[-1], "".join(lines)
        if found := re.match(r"(gpu\d): start ", lines[-1]):
            started.add(found[1])
    mute.send_signal(signal.SIGINT)
    out, said = mute.communicate(timeout=300)
    assert mute.returncode == 3, out + said
    assert {name: cells[-1] for name, cells in table(out).items()} == dict.fromkeys(NAMES, "rolled back"), out + said
    assert {name: world.served(machine) for name, machine in machines.items()} == release
    assert not any(machine.try_sh("test -e /opt/sglang/pending.json").returncode == 0 for machine in machines.values())
