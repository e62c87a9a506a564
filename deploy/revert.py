"""The dead-man's switch: a host whose controller vanished in the middle of a rollout goes back by itself.

`arm` notes where to go back to in `pending.json` and starts a transient timer, which looks every few seconds. While the
controller is heard, its agent renews the note. When it is not for `silence` seconds, or the host was rebooted meanwhile, the
host goes back. `disarm` is the controller's word, by a fresh connection, that it still reaches the host. Standard library only.

    python -I agent.pyz due PENDING [--at-boot]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from deploy import lock, switch, systemd
from tools.errors import UserError

if TYPE_CHECKING:
    from deploy.machine import Machine

#: Seconds between two looks.
LOOK = 5


def arm(host: Machine, silence: float) -> None:
    """From now on the host goes back to what is current."""
    facts = host.facts()
    back = facts.fallback
    document = {
        "root": str(host.layout.root), "service": host.entry.service, "drain": host.entry.drain, "silence": silence,
        "boot": _boot(), "release": back,
        "previous": facts.previous if facts.previous != back else None,
    }  # fmt: skip
    program = host.layout.root / "agent.pyz"
    switch.write_atomically(program, Path(sys.path[0]).read_bytes())
    look = [sys.executable, "-I", str(program), "due", str(pending(host.layout.root))]
    at_boot = f"{host.entry.service}-revert.service"
    systemd.install(at_boot, _unit(look, host.layout.root))
    systemd.ctl("enable", "--quiet", at_boot)
    switch.write_atomically(pending(host.layout.root), json.dumps(document).encode())
    beat(host.layout.root)
    _stop_timer(host.entry.service)
    timer = [f"--on-active={LOOK}", f"--on-unit-inactive={LOOK}", "--timer-property=AccuracySec=1s"]
    systemd.run("systemd-run", "--quiet", f"--unit={_watch(host.entry.service)}", *timer, *look)


def disarm(host: Machine) -> None:
    """The rollout is over, one way or the other."""
    pending(host.layout.root).unlink(missing_ok=True)
    switch.fsync_folder(host.layout.root)
    _stop_timer(host.entry.service)


def pending(root: Path) -> Path:
    """The note."""
    return root / "pending.json"


def beat(root: Path) -> None:
    """The controller was heard."""
    if pending(root).exists():
        (root / "heard").write_text(str(time.clock_gettime(time.CLOCK_BOOTTIME)))


def due(file: Path, *, at_boot: bool) -> int:
    """Look whether it is time; if so, go back. Returns the exit code."""
    from deploy.machine import Machine, Seat

    try:
        note = json.loads(file.read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        print(f"{file} is no JSON document, so there is no telling where to go back to: remove it", file=sys.stderr)
        return 1
    try:
        heard = float((file.parent / "heard").read_text())
    except (FileNotFoundError, ValueError):
        heard = float("-inf")
    same_boot = note["boot"] == _boot()
    if same_boot and time.clock_gettime(time.CLOCK_BOOTTIME) - heard < note["silence"]:
        return 0
    host = Machine(Seat(Path(note["root"]), note["service"], note["drain"]))
    host.by = {"user": "dead-man's switch", "machine": "this host", "agent": 0}
    why = "the host was rebooted in the middle of a rollout" if not same_boot else f"no controller for {note['silence']:.0f} s"
    try:
        with lock.held(host.layout.lock, "revert", host.by):
            _go_back(host, note["release"], note["previous"], at_boot)
            host.audit({"verb": "revert", "release": note["release"], "why": why})
            disarm(host)
    except UserError as error:
        print(f"not yet: {error}", file=sys.stderr)  # the timer comes again
        return 1
    return 0


def _go_back(host: Machine, release: str | None, previous: str | None, at_boot: bool) -> None:
    """Every server that the release has, and no other. All are stopped first: they may have had each other's GPUs."""
    wanted = [slot.name for slot in host.manifest(release).slots] if release else []
    for slot in sorted(host.taken()):
        if slot not in wanted:
            host.forget(slot)
        if not at_boot:
            host.stop(slot)
        elif slot not in wanted:
            systemd.ctl("stop", "--no-block", host.unit(slot))  # its start waits for this
    host.switch(release, previous)
    for slot in wanted:
        if at_boot:
            host.relink(slot, release)
            systemd.ctl("start", "--no-block", host.unit(slot))  # it is ordered after this unit
        else:
            host.start(slot, release)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _watch(service: str) -> str:
    return f"{service}-watch"


def _stop_timer(service: str) -> None:
    try:
        systemd.ctl("stop", f"{_watch(service)}.timer")
    except UserError as error:
        if "not loaded" not in str(error):
            raise


def _unit(look: list[str], root: Path) -> str:
    """The look at boot. The servers' units are ordered after it; the timer's must not be, since it starts the servers itself."""
    return (
        "[Unit]\nDescription=Go back if the host was rebooted in the middle of a rollout\n"
        f"ConditionPathExists={pending(root)}\n"
        f"[Service]\nType=oneshot\nExecStart={' '.join(look)} --at-boot\nTimeoutStartSec=600\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
