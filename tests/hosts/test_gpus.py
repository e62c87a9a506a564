"""GPUs that are dead, used, failing, or not there, on a real host whose nvidia-smi says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import verbs
from deploy.slot import Slot, single
from tests.hosts import world
from tests.hosts.machines import Machine
from tools.cli import UserError

Fresh = Callable[..., Machine]

#: Whose kernel's log is this machine's: what a host with a driver would find in its own.
JOURNAL = """#!/bin/sh
[ "$1" = _TRANSPORT=kernel ] || exec /usr/bin/journalctl "$@"
echo "NVRM: Xid (PCI:0000:68:00): 94, pid=4242, name=python3, Ch 00000008, Contained: CE User Channel (0x3). RST: No, D-RST: No"
"""


def test_gpus(fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = fresh()
    plain = world.make_entry(machine)
    entry = world.make_entry(machine, profile="cu130", slots=(single(world.PORT, 8, tuple(range(8))),))
    host = verbs.connect(plain)
    good = world.make_inputs(tmp_path, plain)
    assert verbs.apply(host, good, json=True) == 0, "a host whose profile needs no GPU"
    assert host.facts().gpus == ()
    host.close()

    host = verbs.connect(entry)
    wanted = world.make_inputs(tmp_path, entry, ACCEPT=2)

    def refused() -> str:
        with pytest.raises(UserError) as caught:
            verbs.apply(host, wanted, json=True)
        assert caught.value.code == 1 and world.current(machine) == good.release == world.served(machine)
        return str(caught.value)

    assert refused() == ("no GPU of ct200 can be used: there is no nvidia-smi on this host, and the profile cu130 needs CUDA")
    (tool := machine.root / "usr/local/bin/nvidia-smi").write_text(Path(__file__).with_name("nvidia_smi.py").read_text())
    tool.chmod(0o755)
    state = {"dead": {"3": "hangs"}, "used": {"2": [[4242, "python3", 81234]]}, "failing": [5]}
    (machine.root / "etc/gpus.json").write_text(json.dumps(state))
    assert refused() == (
        'GPU 3 of ct200 does not answer: nvidia-smi said nothing within 10 s; set topology = "tp4" and gpus = [4, 5, 6, 7] '
        "under [hosts.ct200] in hosts.local.toml, take tp out of its server's flags, "
        "to go on without it, which leaves 0, 1, 2 spare"
    )
    state["dead"] = {"3": "lost"}
    (machine.root / "etc/gpus.json").write_text(json.dumps(state))
    assert "nvidia-smi ended with 255: Unable to determine the device handle for GPU3: 00000000:48:00.0: Unknown" in refused()

    state["dead"] = {}
    (machine.root / "etc/gpus.json").write_text(json.dumps(state))
    (journal := machine.root / "usr/local/bin/journalctl").write_text(JOURNAL)
    journal.chmod(0o755)
    capsys.readouterr()
    assert verbs.tell(verbs.planned(host, wanted), json=True) == 0
    assert [line[:80] for line in json.loads(capsys.readouterr().out)["warnings"]] == [
        "GPU 2: process 4242 (python3), which is no server of ours, holds 81234 MiB",
        "GPU 5: 2 uncorrected memory errors since its driver was loaded",
        "GPU 5: remapping of memory rows pending: reset it, or have it replaced if that r",
        "GPU 5: 1 errors in the kernel's log since the last release: NVRM: Xid (PCI:0000:",
    ]
    assert verbs.tell(verbs.state(host), json=True) == 0
    told = json.loads(capsys.readouterr().out)["gpus"]
    assert [gpu["name"] for gpu in told] == ["NVIDIA H200"] * 8 and told[2]["used"] == 81234
    host.close()

    state["dead"] = {"3": "lost"}
    (machine.root / "etc/gpus.json").write_text(json.dumps(state))
    both = tuple(Slot(f"gpu{gpu}", world.PORT + i, world.PORT + 1000 + i, 1, (gpu,)) for i, gpu in enumerate((0, 3)))
    entry = world.make_entry(machine, profile="cu130", slots=both)
    host, wanted = verbs.connect(entry), world.make_inputs(tmp_path, entry)
    assert 'set topology = "tp1" and gpus = [0] under [hosts.ct200]' in refused()
    host.close()
    entry = world.make_entry(machine, profile="cu130", slots=both[:1])
    host, wanted = verbs.connect(entry), world.make_inputs(tmp_path, entry)
    assert verbs.apply(host, wanted, json=True) == 0
    assert world.current(machine) == wanted.release == world.served(machine)
    host.close()
