"""A real host as its own agent sees it: releases in a store, the servers systemd units. Standard library only.

A server is `<service>@<slot>`; `instances/<slot>` links to the release that it was started with, so a unit that systemd
restarts, or a host that reboots in the middle of a rollout, runs what was proved and not what is about to be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import gpus, manifest, revert, switch, systemd, vram
from deploy.facts import Facts, Instance
from deploy.local import LocalHost
from deploy.manifest import Manifest
from deploy.slot import Slot
from deploy.store import Store
from tools.errors import UserError


@dataclass(frozen=True)
class Seat:
    """What the agent is told of the inventory's entry."""

    root: Path
    service: str
    drain: float  # seconds
    slots: tuple[Slot, ...] = ()  # that are wanted
    gpus: tuple[int, ...] = ()  # likewise


class Machine(LocalHost):
    """Everything that the agent does."""

    entry: Seat

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self.store = Store(self.layout)

    def unit(self, slot: str) -> str:
        """The slot's unit."""
        return f"{self.entry.service}@{slot}.service"

    def link(self, slot: str) -> Path:
        """What says which release the slot's unit runs."""
        return self.layout.root / "instances" / slot

    def taken(self) -> set[str]:
        return {path.name for path in self.link("").glob("[!.]*")}

    def processes(self, slot: str) -> set[int]:
        return systemd.processes(self.unit(slot))

    def facts(self) -> Facts:
        systemd.require()
        facts = super().facts()
        if not self.entry.gpus:
            return facts
        verdict = self.layout.verdicts / f"{facts.current}.json"
        since = verdict.stat().st_mtime if verdict.exists() else None  # what it says of the time is by its controller's clock
        own = {pid for slot in facts.instances for pid in self.processes(slot)}
        return dataclasses.replace(facts, gpus=gpus.read(self.entry.gpus, own, since))

    def instance(self, slot: str) -> Instance:
        systemd.require()
        return systemd.inspect(self.unit(slot), switch.read(self.link(slot)))

    def start(self, slot: str, release: str) -> Instance:
        vram.wait(self._slot(release, slot).gpus)
        self.relink(slot, release)
        systemd.ctl("reset-failed", self.unit(slot))
        systemd.ctl("start", self.unit(slot))
        return self.instance(slot)

    def relink(self, slot: str, release: str) -> None:
        """Let the slot's unit be the release's, from the next boot on as well."""
        units = self.layout.release(release) / "units"
        for file in units.glob("*.service"):
            systemd.install(file.name, file.read_text())
        self.layout.run(slot).mkdir(parents=True, exist_ok=True)
        link = self.link(slot)
        link.parent.mkdir(exist_ok=True)
        temporary = link.with_name(f".{slot}.new")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(self.layout.release(release), link.parent))
        os.rename(temporary, link)
        switch.flush(self.layout.root)
        systemd.ctl("enable", "--quiet", self.unit(slot))

    def stop(self, slot: str) -> bool:
        before = self.instance(slot)
        systemd.ctl("stop", self.unit(slot), timeout=self.entry.drain + 60)
        if left := self.processes(slot):
            raise UserError(f"processes {sorted(left)} of {self.unit(slot)} can't be ended", 4)
        return before.running

    def retire(self, slot: str) -> bool:
        ran = self.stop(slot)
        self.forget(slot)
        return ran

    def forget(self, slot: str) -> None:
        """The slot is not started again."""
        systemd.ctl("disable", "--quiet", self.unit(slot))
        self.link(slot).unlink(missing_ok=True)

    def log(self, slot: str, lines: int) -> list[str]:
        last = ("--no-pager", "--output=cat", f"--lines={lines}")
        return systemd.run("journalctl", *last, f"--unit={self.unit(slot)}").splitlines()

    def prune(self, keep: int, spare: frozenset[str]) -> tuple[str, ...]:
        removed = super().prune(keep, frozenset(spare) | {switch.read(self.link(slot)) or "" for slot in self.taken()})
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
