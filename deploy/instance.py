"""Starts, stops and reads a supervised server. Every wait has an end; a stop leaves no process behind.

Whether a supervisor lives is asked of the lock that it holds, never of a process id alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from deploy import supervisor
from deploy.facts import Instance
from tools.cli import UserError

#: Seconds that a supervisor gets to report its server's start.
REPORT = 20.0
#: Seconds beyond the drain time that a supervisor gets to end.
GRACE = 15.0


def inspect(run: Path) -> Instance:
    """The instance in `run` as it is now."""
    state = _state(run)
    if _supervisor(run) is None:
        kept = {"release": state.get("release"), "restarts": state.get("restarts", 0), "exit": state.get("exit")}
        return Instance(state="failed" if state.get("state") == "failed" else "stopped", **kept)
    return Instance(
        state=state.get("state", "running"),
        release=state.get("release"),
        pid=state.get("pid"),
        since=state.get("since"),
        restarts=state.get("restarts", 0),
        exit=state.get("exit"),
    )


def start(unit: Path, run: Path) -> Instance:
    """Start a supervisor for `unit`; it outlives this process. Nothing must run in `run`."""
    if pid := _supervisor(run):
        raise UserError(f"a server is supervised in {run} already, by process {pid}")
    run.mkdir(parents=True, exist_ok=True)
    (run / "state.json").unlink(missing_ok=True)
    with open(run / "supervisor.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", supervisor.__file__, str(unit), str(run)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    end = time.monotonic() + REPORT
    while time.monotonic() < end:
        if _state(run):
            return inspect(run)
        if process.poll() is not None:
            raise UserError(f"the supervisor ended with {supervisor.in_words(process.returncode)}: see {log.name}")
        time.sleep(0.02)
    raise UserError(f"the supervisor did not report within {REPORT:.0f} s: see {log.name}")


def stop(run: Path, drain: float) -> bool:
    """Stop the server and its supervisor; False if nothing ran. Raises if something can't be ended."""
    pid = _supervisor(run)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + drain + GRACE
        while _supervisor(run) and time.monotonic() < end:
            time.sleep(0.05)
        if _supervisor(run) == pid:
            os.kill(pid, signal.SIGKILL)
    left = bool(supervisor.marked(run))
    supervisor.sweep(run)
    if stuck := supervisor.marked(run):
        raise UserError(f"processes {stuck} of the server can't be ended", 4)
    return pid is not None or left


def _state(run: Path) -> dict:
    try:
        return json.loads((run / "state.json").read_text())
    except FileNotFoundError:
        return {}


def _supervisor(run: Path) -> int | None:
    """The living supervisor's process id, as the holder of its lock wrote it; None if nobody holds the lock."""
    end = time.monotonic() + REPORT
    while time.monotonic() < end:
        try:
            with open(run / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except FileNotFoundError:
            return None
        except BlockingIOError:
            if pid := (run / "lock").read_text():
                return int(pid)
        time.sleep(0.01)  # it has the lock, and has not written its id yet
    raise UserError(f"a supervisor holds {run / 'lock'} and does not say which process it is", 4)
