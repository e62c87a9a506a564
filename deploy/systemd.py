"""systemd, asked and told by its own command, each time with a deadline. Standard library only: it travels to hosts."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from deploy import switch
from deploy.facts import Instance
from tools.errors import UserError

UNITS = Path("/etc/systemd/system")
#: Seconds for a command that does not wait for a service.
QUICK = 30.0

_ENDS = {"1": "exit status {}", "2": "killed by signal {}", "3": "killed by signal {}, core dumped"}


def require() -> None:
    """A `UserError` on a host that systemd does not run."""
    if not Path("/run/systemd/system").is_dir():
        raise UserError("systemd does not run on this host (there is no /run/systemd/system): nothing can be served there")


def run(*argv: str, timeout: float = QUICK) -> str:
    """Run a command; its output."""
    what = " ".join(argv[:4])
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise UserError(f"`{what}` did not end within {timeout:.0f} s") from None
    except FileNotFoundError:
        raise UserError(f"there is no {argv[0]} on this host") from None
    if done.returncode:
        raise UserError(f"`{what}` failed with exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def ctl(*words: str, timeout: float = QUICK) -> str:
    """`systemctl`."""
    return run("systemctl", *words, timeout=timeout)


def install(name: str, text: str) -> None:
    """Write the unit file and let systemd know, unless it is there."""
    file = UNITS / name
    if not file.is_file() or file.read_text() != text:
        switch.write_atomically(file, text.encode())
        ctl("daemon-reload")


def show(unit: str) -> dict[str, str]:
    """The unit's properties that matter here."""
    names = (
        "ActiveState SubState MainPID NRestarts Result ExecMainCode ExecMainStatus ExecMainStartTimestampMonotonic ControlGroup"
    )
    lines = ctl("show", "--property", names.replace(" ", ","), unit).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def inspect(unit: str, release: str | None) -> Instance:
    """The unit as an instance; `release` is what it was started with."""
    is_ = show(unit)
    active, pid = is_.get("ActiveState", "inactive"), int(is_.get("MainPID", 0))
    state = {"active": "running", "reloading": "running", "deactivating": "running", "failed": "failed"}.get(active, "stopped")
    if active == "activating":
        state = "backing-off" if is_.get("SubState") == "auto-restart" else "running"
    began = int(is_.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
    code, status = is_.get("ExecMainCode", "0"), is_.get("ExecMainStatus", "0")
    return Instance(
        state=state,
        release=release,
        pid=pid or None,
        since=time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - began) if pid else None,
        restarts=int(is_.get("NRestarts") or 0),
        exit=_ENDS[code].format(status) if code in _ENDS and not pid else None,
    )


def processes(unit: str) -> set[int]:
    """The live processes of the unit, by its control group."""
    group = show(unit).get("ControlGroup")
    found = set()
    for entry in Path("/proc").iterdir() if group else ():
        if entry.name.isdigit():
            try:
                lines = (entry / "cgroup").read_text().splitlines()
            except OSError:
                continue
            if any(line.split(":", 2)[2] == group or line.split(":", 2)[2].startswith(f"{group}/") for line in lines):
                found.add(int(entry.name))
    return found
