"""What is wrong with a host itself, on one host, one fault after the other. Each time: `current` is a whole release that
serves, the message says what and where, the exit code is the documented one, and the next apply mends it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import remote, verbs
from deploy.inputs import Inputs
from deploy.remote import Remote
from tests.hosts import world
from tests.hosts.machines import Machine
from tools.cli import UserError

Fresh = Callable[..., Machine]
Fault = Callable[[Machine], contextlib.AbstractContextManager[None]]

HANGS = '#!/bin/sh\n[ "$1" = start ] && mkdir /run/hung 2>/dev/null && exec sleep 600\nexec /usr/bin/systemctl "$@"\n'

FAILS = '#!/bin/sh\n[ "$1" = start ] && { echo no >&2; exit 1; }\nexec /usr/bin/systemctl "$@"\n'


def fill(machine: Machine, leave: int) -> None:
    """Take the disk's space but for `leave` bytes."""
    disk = os.statvfs(machine.disk)
    with open(machine.disk / "filler", "wb") as filler, contextlib.suppress(OSError):
        os.posix_fallocate(filler.fileno(), 0, disk.f_bfree * disk.f_frsize - leave)
        while not leave:
            filler.seek(0, os.SEEK_END)
            filler.write(bytes(4096))
            filler.flush()


@contextlib.contextmanager
def little_space(machine: Machine) -> Iterator[None]:
    fill(machine, 100 << 20)
    yield
    (machine.disk / "filler").unlink()


@contextlib.contextmanager
def no_space(machine: Machine) -> Iterator[None]:
    fill(machine, 0)
    yield
    (machine.disk / "filler").unlink()


@contextlib.contextmanager
def no_inodes(machine: Machine) -> Iterator[None]:
    folder = machine.disk / "many"
    folder.mkdir()
    with contextlib.suppress(OSError):
        for number in range(1 << 20):
            (folder / str(number)).touch()
    yield
    shutil.rmtree(folder)


@contextlib.contextmanager
def read_only(machine: Machine) -> Iterator[None]:
    machine.sh("mount --bind /opt/sglang /opt/sglang && mount -o remount,bind,ro /opt/sglang")
    yield
    machine.sh("umount /opt/sglang")


def immutable(name: str) -> Fault:
    @contextlib.contextmanager
    def fault(machine: Machine) -> Iterator[None]:
        machine.sh(f"chattr +i {name}")
        yield
        machine.sh(f"chattr -i {name}")

    return fault


@contextlib.contextmanager
def hung_command(machine: Machine) -> Iterator[None]:
    machine.sh("cat > /usr/local/bin/systemctl && chmod +x /usr/local/bin/systemctl", input=HANGS.encode())
    yield
    machine.sh("rm /usr/local/bin/systemctl")


def attempt(host: Remote, wanted: Inputs, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """An apply's exit code and what it says of its failure."""
    capsys.readouterr()
    try:
        code = verbs.apply(host, wanted, json=True)
    except UserError as error:
        return error.code, str(error)
    return code, json.loads(capsys.readouterr().out)["failure"] or ""


FAULTS: tuple[tuple[str, Fault, bool, int, str], ...] = (
    # name, what is done, whether the release is there before, exit code, what is said
    ("little space", little_space, False, 1, r"/opt/sglang has \d+ MiB free, the release needs \d+ MiB: make room there"),
    ("no space", no_space, True, 1, r"ct200: No space left on device.*/opt/sglang"),
    ("no inodes", no_inodes, False, 1, r"/opt/sglang has \d+ inodes free, the release needs about \d+: make room"),
    ("read-only", read_only, False, 1, r"ct200: the lock /opt/sglang/lock can't be taken: Read-only file system"),
    ("immutable releases", immutable("/opt/sglang/releases"), False, 1, r"Operation not permitted: /opt/sglang/releases/"),
    ("immutable root", immutable("/opt/sglang"), True, 1, r"guard: ct200: Operation not permitted: /opt/sglang/\.agent"),
    ("hung command", hung_command, True, 3, r"start: ct200: `systemctl start sglang@engine.service` did not end within 3 s"),
)


def test_faults_of_a_host(
    fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = remote.program
    monkeypatch.setattr(remote, "program", world.impatient({"deploy/systemd.py": ("QUICK = 30.0", "QUICK = 3.0")}))
    machine = fresh(disk=True)
    entry = world.make_entry(machine)
    host = Remote(entry)
    good = world.make_inputs(tmp_path, entry)
    assert verbs.apply(host, good, json=True) == 0
    for name, fault, staged, code, said in FAULTS:
        wanted = world.make_inputs(tmp_path, entry, FAULT=name)
        if staged:
            host.stage(wanted)
        with fault(machine):
            ended, why = attempt(host, wanted, capsys)
            assert ended == code and re.search(said, why), (name, ended, why)
            assert world.current(machine) == good.release == world.served(machine), name
        assert attempt(host, wanted, capsys) == (0, ""), name
        assert world.current(machine) == wanted.release == world.served(machine), name
        good = wanted

    # The disk fills up behind the check's back.
    (tmp_path / "shims/big").write_bytes(os.urandom(4 << 20))
    wanted = world.make_inputs(tmp_path, entry)
    counted = Remote._counted

    def filling(*how: object) -> Iterator[bytes]:
        fill(machine, 0)
        yield from counted(*how)

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "_counted", filling)
        ended, why = attempt(host, wanted, capsys)
    assert ended == 1 and re.search(r"stage: ct200: No space left on device.*/opt/sglang", why), why
    assert world.current(machine) == good.release == world.served(machine)
    (machine.disk / "filler").unlink()
    assert attempt(host, wanted, capsys) == (0, "")

    for hours in (2, -2):  # between the agent's clock and this side's
        off = f"import sys, time\nnow = time.time\ntime.time = lambda: now() + {hours * 3600}\n"
        monkeypatch.setattr(remote, "program", program)
        monkeypatch.setattr(remote, "program", world.impatient({"__main__.py": ("import sys\n", off)}))
        host.close()
        crashing, wanted = (world.make_inputs(tmp_path, entry, HOURS=hours, CRASH=crash) for crash in (True, False))
        ended, why = attempt(host, crashing, capsys)
        assert ended == 3 and "ended while it started (exit status 1)" in why, (ended, why)
        assert attempt(host, wanted, capsys) == (0, "")
        assert world.current(machine) == wanted.release == world.served(machine)
    host.close()


def test_what_cannot_be_taken_back_from_here_the_host_does_when_it_can(
    fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = fresh()
    entry = world.make_entry(machine)
    host = Remote(entry)
    good, wanted = world.make_inputs(tmp_path, entry), world.make_inputs(tmp_path, entry, ACCEPT=2)
    assert verbs.apply(host, good, json=True) == 0
    machine.sh("cat > /usr/local/bin/systemctl && chmod +x /usr/local/bin/systemctl", input=FAILS.encode())
    capsys.readouterr()
    assert verbs.apply(host, wanted, json=True) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["note"] == f"the host itself goes back to {good.release} as soon as it can"
    host.close()
    assert world.current(machine) == good.release and machine.sh("cat /opt/sglang/pending.json")
    machine.sh("rm /usr/local/bin/systemctl")
    machine.wait_for("test ! -e /opt/sglang/pending.json", 120)
    assert world.current(machine) == good.release == world.served(machine)
    assert json.loads(machine.sh("tail -n 1 /opt/sglang/audit.jsonl"))["verb"] == "revert"
