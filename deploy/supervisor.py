"""Keeps one server running: what systemd is to a real host, for a host without it. Standard library only.

    python -I supervisor.py UNIT RUN      UNIT: a release's units/engine.json; RUN: folder for state and log

Guarantees: one supervisor a RUN folder (flock on `lock`, held for its whole life, so a recycled process id can't deceive);
the server starts again after a crash, with growing pauses, until its limit is reached; a stop is SIGTERM to the server,
then, when its drain time is over, SIGKILL to everything that it started; when the supervisor itself is killed, the server
dies with it. `state.json` is always whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Marks every process of an instance: its value is the RUN folder.
MARK = "SGLANG_DEPLOY_INSTANCE"
#: Seconds for which another supervisor's lock must be seen.
PATIENCE = 1.0
_AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


class Supervisor:
    """One server process after the other, in the folder `run`."""

    def __init__(self, unit: dict, run: Path) -> None:
        self.unit, self.run = unit, run
        self.state: dict = {"release": unit["release"], "restarts": 0, "exit": None}
        self.stopping = False

    def serve(self) -> int:
        """Run until stopped (returns 0) or until the restart limit is reached (returns 1)."""
        starts: list[float] = []
        while True:
            starts = [t for t in starts if time.monotonic() - t < self.unit["window"]] + [time.monotonic()]
            status = self._once()
            if self.stopping:
                self._tell("stopped", pid=None, exit=status)
                return 0
            if len(starts) > self.unit["restarts"]:
                self._tell("failed", pid=None, exit=status)
                return 1
            pause = min(self.unit["pause"] * 2 ** (len(starts) - 1), self.unit["longest_pause"])
            self._tell("backing-off", pid=None, exit=status)
            if self._wait_for_stop(pause):
                self._tell("stopped", pid=None)
                return 0
            self.state["restarts"] += 1

    def _once(self) -> str:
        """Start the server and wait for its end; how it ended, in words."""
        attest = self.run / "attest"
        shutil.rmtree(attest, ignore_errors=True)
        attest.mkdir()
        rotate(self.run / "log", self.unit["log_bytes"])
        with open(self.run / "log", "ab") as log:
            server = subprocess.Popen(
                self.unit["argv"],
                env={**environment(Path(self.unit["environment_file"])), MARK: str(self.run)},
                cwd=self.run,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._tell("running", pid=server.pid, since=time.time())
        while server.poll() is None and not self.stopping:
            self.stopping = signal.sigwaitinfo(_AWAITED).si_signo != signal.SIGCHLD
        if self.stopping and server.poll() is None:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(self.unit["drain"])
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        sweep(self.run)
        return in_words(server.returncode)

    def _wait_for_stop(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            arrived = signal.sigtimedwait(_AWAITED, left)
            if arrived and arrived.si_signo != signal.SIGCHLD:
                return True
        return False

    def _tell(self, state: str, **more: object) -> None:
        self.state.update(state=state, **more)
        temporary = self.run / ".state.new"
        temporary.write_text(json.dumps(self.state))
        temporary.rename(self.run / "state.json")


def environment(file: Path) -> dict[str, str]:
    """The variables of an environment file: one NAME=value a line."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if line)


def in_words(returncode: int) -> str:
    """A process's end: `exit status 1`, `killed by SIGKILL`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    return f"killed by {signal.Signals(-returncode).name}"


def marked(run: Path) -> list[int]:
    """The live processes that belong to the instance in `run`, whoever their parent is now."""
    wanted, found = f"{MARK}={run}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone meanwhile, or another user's
    return found


def sweep(run: Path, seconds: float = 10.0) -> None:
    """End what a server left behind: nothing of it holds the port or memory afterwards."""
    end = time.monotonic() + seconds
    while (left := marked(run)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def rotate(log: Path, limit: int) -> None:
    """Keep one older log once this one is over `limit` bytes."""
    if log.exists() and log.stat().st_size > limit:
        log.replace(log.with_name("log.1"))


def _die_with_parent() -> None:
    """In the child: open the signals that the supervisor waits for, and end when the supervisor does."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def _lock(handle: int) -> bool:
    """Take the lock. Whoever asks whether somebody holds it holds it himself for a moment, so one refusal says nothing."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
        time.sleep(0.01)


def main(unit_file: str, run_folder: str) -> int:
    """Supervise the unit until told to stop; 2 if another supervisor has the folder."""
    run = Path(run_folder).resolve()
    run.mkdir(parents=True, exist_ok=True)
    with open(run / "lock", "a") as lock:
        if not _lock(lock.fileno()):
            return 2
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)  # before anybody can know whom to stop
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        sweep(run)
        return Supervisor(json.loads(Path(unit_file).read_text()), run).serve()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
