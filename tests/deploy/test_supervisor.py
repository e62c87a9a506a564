"""The supervisor, with small real processes in place of the engine."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import instance, supervisor
from deploy.facts import Instance
from tools.cli import UserError

#: Serves until told to stop, and starts a child that ignores everything and leaves the process group.
STUBBORN = """
import os, signal, subprocess, sys, time
child = "import os, signal, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); "
child += "open('child.new', 'w').write(str(os.getpid())); os.rename('child.new', 'child'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
if sys.argv[1:] == ["ignore"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("serving", flush=True)
while True: time.sleep(1)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "run"
    yield folder
    instance.stop(folder, 0)


def unit(folder: Path, code: str, *args: str, **more: object) -> Path:
    """A unit that runs `code`."""
    (folder / "env").write_text(f"PATH={os.environ['PATH']}\nGREETING=a=b c\n")
    settings = {"drain": 1, "restarts": 2, "window": 60, "pause": 0.05, "longest_pause": 0.1, "log_bytes": 1000, **more}
    file = folder / "unit.json"
    argv = [sys.executable, "-c", code, *args]
    file.write_text(json.dumps({"release": "r1", "argv": argv, "environment_file": str(folder / "env"), **settings}))
    return file


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def state(run: Path) -> Instance:
    return instance.inspect(run)


def test_a_server_runs_with_its_environment_and_outlives_who_started_it(tmp_path: Path, run: Path) -> None:
    code = "import os, time; print(sorted(os.environ), os.environ['GREETING'], flush=True); time.sleep(600)"
    started = instance.start(unit(tmp_path, code), run)
    assert (started.state, started.release, started.restarts) == ("running", "r1", 0)
    until(lambda: b"a=b c" in (run / "log").read_bytes())
    assert os.getsid(started.pid) not in (os.getsid(0), 0)
    assert "PYTEST_CURRENT_TEST" not in (run / "log").read_text(), "nothing of the caller's environment comes in"
    assert instance.stop(run, 1)
    assert state(run).state == "stopped" and not instance.stop(run, 1)


def test_a_crashing_server_is_started_again_up_to_the_limit(tmp_path: Path, run: Path) -> None:
    instance.start(unit(tmp_path, "print('hello', flush=True); raise SystemExit(7)"), run)
    until(lambda: state(run).state == "failed")
    assert (run / "log").read_text().count("hello") == 3
    assert state(run).exit == "exit status 7" and state(run).restarts == 2


def test_a_killed_server_comes_back_as_another_process(tmp_path: Path, run: Path) -> None:
    first = instance.start(unit(tmp_path, STUBBORN), run).pid
    until(lambda: (run / "child").exists())
    child = int((run / "child").read_text())
    assert {first, child} == set(supervisor.marked(run))
    os.kill(first, signal.SIGKILL)
    until(lambda: state(run).state == "running" and state(run).pid != first)
    assert state(run).restarts == 1 and state(run).exit == "killed by SIGKILL"
    assert not {first, child} & set(supervisor.marked(run)), "what it had started is gone before it starts again"


@pytest.mark.parametrize("how", ["ends", "ignore"])
def test_a_stop_leaves_no_process_behind(tmp_path: Path, run: Path, how: str) -> None:
    instance.start(unit(tmp_path, STUBBORN, how), run)
    until(lambda: (run / "child").exists())
    assert len(supervisor.marked(run)) == 2
    assert instance.stop(run, 1)
    assert supervisor.marked(run) == []
    assert state(run).exit == ("killed by SIGKILL" if how == "ignore" else "killed by SIGTERM")


def test_a_stop_during_a_pause_is_heard(tmp_path: Path, run: Path) -> None:
    instance.start(unit(tmp_path, "raise SystemExit(1)", pause=600, longest_pause=600), run)
    until(lambda: state(run).state == "backing-off")
    assert instance.stop(run, 1)
    assert state(run).state == "stopped"


def test_the_server_dies_with_its_supervisor(tmp_path: Path, run: Path) -> None:
    pid = instance.start(unit(tmp_path, STUBBORN, "ignore"), run).pid
    until(lambda: (run / "child").exists())
    os.kill(int((run / "lock").read_text()), signal.SIGKILL)
    until(lambda: pid not in supervisor.marked(run))
    assert state(run).state == "stopped"
    assert instance.stop(run, 1), "the child is still there, and is ended"
    assert supervisor.marked(run) == []


def test_one_supervisor_a_folder(tmp_path: Path, run: Path) -> None:
    file = unit(tmp_path, STUBBORN)
    pid = instance.start(file, run).pid
    with pytest.raises(UserError, match=r"a server is supervised in .* already, by process \d+"):
        instance.start(file, run)
    assert supervisor.main(str(file), str(run)) == 2, "the lock says the same to a second supervisor"
    assert pid in supervisor.marked(run)


def test_who_looks_while_it_starts_does_not_stop_it(tmp_path: Path, run: Path) -> None:
    run.mkdir()
    (run / "lock").touch()
    with open(run / "lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.3, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        assert instance.start(unit(tmp_path, STUBBORN), run).state == "running"


def test_a_long_log_is_put_aside_at_a_start(tmp_path: Path, run: Path) -> None:
    run.mkdir()
    (run / "log").write_text("x" * 1001)
    instance.start(unit(tmp_path, STUBBORN), run)
    until(lambda: (run / "log").exists() and "serving" in (run / "log").read_text())
    assert (run / "log.1").stat().st_size == 1001
