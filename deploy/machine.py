"""A real host as its own agent sees it: releases in a store, the server a systemd unit. Standard library only.

The instance is `<service>@engine`; `instances/engine` links to the release that it was started with, so a unit that systemd
restarts, or a host that reboots in the middle of a rollout, runs what was proved and not what is about to be.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import manifest, revert, switch, systemd
from deploy.facts import Instance
from deploy.local import LocalHost
from deploy.manifest import Manifest
from deploy.store import Store
from tools.errors import UserError

SLOT = "engine"


@dataclass(frozen=True)
class Seat:
    """What the agent is told of the inventory's entry."""

    root: Path
    port: int
    service: str
    drain: float  # seconds


class Machine(LocalHost):
    """Everything that the agent does."""

    entry: Seat

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self.store = Store(self.layout)
        self.unit = f"{seat.service}@{SLOT}.service"
        self.link = self.layout.root / "instances" / SLOT

    def processes(self) -> set[int]:
        return systemd.processes(self.unit)

    def instance(self) -> Instance:
        systemd.require()
        return systemd.inspect(self.unit, switch.read(self.link))

    def start(self, release: str) -> Instance:
        if stranger := self._stranger(self.manifest(release).port):
            raise UserError(stranger)
        self.relink(release)
        systemd.ctl("enable", "--quiet", self.unit)
        systemd.ctl("reset-failed", self.unit)
        systemd.ctl("start", self.unit)
        return self.instance()

    def relink(self, release: str) -> None:
        """Let the unit be the release's."""
        units = self.layout.release(release) / "units"
        for file in units.glob("*.service"):
            systemd.install(file.name, file.read_text())
        self.layout.run.mkdir(parents=True, exist_ok=True)
        self.link.parent.mkdir(exist_ok=True)
        temporary = self.link.with_name(f".{SLOT}.new")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(self.layout.release(release), self.link.parent))
        os.rename(temporary, self.link)
        switch.flush(self.layout.root)

    def stop(self) -> bool:
        before = self.instance()
        systemd.ctl("stop", self.unit, timeout=self.entry.drain + 60)
        if left := self.processes():
            raise UserError(f"processes {sorted(left)} of {self.unit} can't be ended", 4)
        return before.running

    def log(self, lines: int) -> list[str]:
        return systemd.run("journalctl", "--no-pager", "--output=cat", f"--lines={lines}", f"--unit={self.unit}").splitlines()

    def prune(self, keep: int, spare: frozenset[str]) -> tuple[str, ...]:
        removed = super().prune(keep, frozenset(spare) | {switch.read(self.link) or ""})
        self.store.collect()
        return removed

    def lacks(self, wanted: list, links: int) -> list:
        systemd.require()
        return self.store.lacks([(sha, size, executable) for sha, size, executable in wanted], links)

    def stage(self, release: str, files: list) -> Manifest:
        self.store.stage(release, files)
        made = manifest.load(self.layout.release(release))
        if made is None:
            raise UserError(f"release {release} has no manifest: nothing of it is used")
        return made

    def about(self) -> dict[str, Any]:
        """The machine itself: system, disk, Python."""
        where = next(path for path in (self.layout.root, *self.layout.root.parents) if path.exists())
        release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
        disk = shutil.disk_usage(where)
        return {
            "system": release.get("PRETTY_NAME", platform.platform()),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "disk_free": disk.free,
            "systemd": Path("/run/systemd/system").is_dir(),
        }

    def arm(self, silence: float) -> None:
        revert.arm(self, silence)

    def confirm(self) -> None:
        revert.disarm(self)

    def unlock(self) -> str | None:
        """End who holds the lock; who it was."""
        from deploy import lock

        holder = lock.holder(self.layout.lock)
        if holder is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(holder["agent"]), 9)
        return f"`{holder.get('verb')}` of {holder.get('user')} on {holder.get('machine')}"
