"""Rollouts over SSH under systemd, with a stand-in engine: releases, units, links, gates and the agent are the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import verbs
from tests.hosts import world
from tests.hosts.machines import Machine
from tools.cli import UserError

Fresh = Callable[..., Machine]


def test_apply_again_bad_ones_rollback_stop(fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = fresh()
    entry = world.make_entry(machine)
    host = verbs.connect(entry)

    def said() -> dict:
        return json.loads(capsys.readouterr().out)

    good = world.make_inputs(tmp_path, entry)
    assert verbs.apply(host, good, json=True) == 0, capsys.readouterr()
    report = said()
    assert report["release_served"] == good.release == world.current(machine) == world.served(machine)
    assert [step["step"] for step in report["steps"]] == [
        "stage", "guard", "start", "health", "prove", "probe", "switch", "confirm", "prune",
    ]  # fmt: skip
    assert machine.try_sh("systemctl is-active sglang-watch.timer").stdout != b"active\n"
    assert machine.sh("systemctl is-enabled sglang@engine") == "enabled"
    pid = machine.sh("systemctl show --property MainPID --value sglang@engine")

    assert verbs.apply(host, world.make_inputs(tmp_path, entry), json=True) == 0
    assert said()["summary"].startswith("nothing changes")
    assert machine.sh("systemctl show --property MainPID --value sglang@engine") == pid

    for wrong, step, why in (
        ({"LOSSY": True}, "probe", "probe 1, whose token 3 is"),
        ({"CLAIM": "another"}, "prove", "the server says another"),
        ({"CRASH": True}, "health", "ended while it started (exit status 1)"),
        ({"MUTE": True}, "health", "no answer within 5 s"),
    ):
        bad = world.make_inputs(tmp_path, entry, **wrong)
        assert verbs.apply(host, bad, json=True) == 3
        report = said()
        assert report["ending"] == "rolled back"
        assert report["failure"].startswith(f"{step}: ") and why in report["failure"], report["failure"]
        assert world.current(machine) == good.release == world.served(machine)
        if "CRASH" in wrong:
            assert any("this build crashes" in line for line in report["log"])

    second = world.make_inputs(tmp_path, entry, ACCEPT=2)
    assert verbs.apply(host, second, json=True) == 0
    assert verbs.rollback(host, None, json=True) == 0
    assert world.current(machine) == good.release == world.served(machine)
    boot = machine.sh("cat /proc/sys/kernel/random/boot_id")
    machine.try_sh("systemctl reboot")  # it may take the connection with it
    host.close()
    machine.wait_for(f"! grep -q {boot} /proc/sys/kernel/random/boot_id && systemctl is-active sglang@engine")
    host = verbs.connect(entry)
    assert host.instance("engine").release == good.release, "the unit starts with the host"
    assert verbs.stop(host, json=True) == 0
    assert machine.try_sh("systemctl is-active sglang@engine").stdout == b"inactive\n"
    audit = [json.loads(line) for line in machine.sh("cat /opt/sglang/audit.jsonl").splitlines()]
    assert [event.get("exit") for event in audit] == [0, 0, 3, 3, 3, 3, 0, 0, None]
    host.close()


def test_who_may_not_and_what_is_missing(fresh: Fresh, tmp_path: Path) -> None:
    machine = fresh()
    entry = world.make_entry(machine, user="deploy", sudo=True)
    host = verbs.connect(entry)
    assert host.facts().current is None
    host.close()
    machine.sh("rm /etc/sudoers.d/deploy")
    with pytest.raises(UserError, match=r"ct200: sudo without a password is refused .*NOPASSWD"):
        verbs.connect(entry).facts()
    plain = verbs.connect(world.make_entry(machine, user="deploy"))
    with pytest.raises(UserError, match="/opt/sglang/lock can't be taken: Permission denied") as refused:
        verbs.apply(plain, world.make_inputs(tmp_path, entry), json=True)
    assert refused.value.code == 1
    plain.close()
    with pytest.raises(UserError, match=r"there is no /usr/bin/python3\.9"):
        verbs.connect(world.make_entry(machine, python="/usr/bin/python3.9")).facts()
    with pytest.raises(UserError, match="systemd does not run on this host"):
        verbs.connect(world.make_entry(fresh("plain", systemd=False))).facts()
