"""What every host does with its own disk and its own servers' ports, whoever keeps those servers running.

The sandbox and the agent on a real host are both made of it. Standard library only: it travels to hosts.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from deploy import audit, digest, http, lock, manifest, mapped, pairs, ports, switch
from deploy.facts import Facts, Instance, Verdict
from deploy.layout import Layout
from deploy.manifest import Manifest
from deploy.proof import Attested, read_attested
from deploy.slot import Slot
from tools.errors import UserError

#: Seconds that running servers get to show that they are live, when facts are gathered.
LIVE = 20.0


class Seat(Protocol):
    """What must be known of a host's inventory entry where the host is."""

    root: Path
    slots: tuple[Slot, ...]


class LocalHost(ABC):
    """The part of `deploy.host.Host` that is about files, links, and questions to servers."""

    #: Who does this, for the lock and the audit log; None: this process.
    by: dict[str, object] | None = None

    def __init__(self, entry: Seat) -> None:
        self.entry = entry
        self.layout = Layout(entry.root.resolve())

    @abstractmethod
    def instance(self, slot: str) -> Instance:
        """The server as its supervisor sees it."""

    @abstractmethod
    def taken(self) -> set[str]:
        """The slots in which something was started and not retired."""

    @abstractmethod
    def processes(self, slot: str) -> set[int]:
        """The server's live processes."""

    def endpoint(self, slot: str) -> str:
        return f"http://127.0.0.1:{self._port(slot)}"

    def root(self) -> Path:
        return self.layout.root

    def facts(self) -> Facts:
        current = switch.read(self.layout.current)
        topologies = {release: self.manifest(release).slots for release in self._releases()}
        names = self.taken() | {slot.name for slot in topologies.get(current or "", ())}
        instances = {name: self.instance(name) for name in sorted(names)}
        with ThreadPoolExecutor(max(1, len(instances))) as pool:
            live = pool.map(lambda name: instances[name].state == "running" and self._live(name), instances)
            instances = {name: dataclasses.replace(instances[name], live=so) for name, so in zip(instances, live, strict=True)}
        return Facts(
            current=current,
            previous=switch.read(self.layout.previous),
            releases=tuple(topologies),
            verdicts=self._verdicts(),
            topologies=topologies,
            instances=instances,
            inputs=self.manifest(current).inputs if current in topologies else {},
            texts=self._texts(current) if current in topologies else {},
            stranger=self._stranger(self.entry.slots),
        )

    def hold(self, verb: str) -> AbstractContextManager[None]:
        return lock.held(self.layout.lock, verb, self.by)

    def manifest(self, release: str) -> Manifest:
        found = manifest.load(self.layout.release(release))
        if found is None:
            known = ", ".join(self._releases()) or "none"
            raise UserError(f"there is no whole release {release} under {self.layout.releases}; there are: {known}")
        return found

    def verify(self, release: str) -> None:
        site = self.layout.release(release) / "site"
        files = self.manifest(release).files
        odd = [name for name, sha in files.items() if not (site / name).is_file() or digest.of_file(site / name) != sha]
        if odd:
            folder = self.layout.release(release)
            raise UserError(
                f"release {release} was changed after it was staged, in {', '.join(odd[:5])} of {folder / 'site'}: it can't be "
                f"used; remove {folder}, and the next apply stages it anew"
            )

    def probes(self, release: str) -> pairs.Probes:
        return pairs.load_probes(self.layout.release(release) / "probes.json")

    def switch(self, current: str | None, previous: str | None) -> None:
        switch.switch(self.layout, current, previous)

    def ask(self, slot: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any:
        return http.ask(self._port(slot), path, body, timeout=timeout)

    def attested(self, slot: str) -> tuple[Attested, ...]:
        records = {int(file.stem): file for file in self.layout.attest(slot).glob("*.jsonl")}
        said = {pid: read_attested(records[pid]) if pid in records else Attested(pid, {}) for pid in self.processes(slot)}
        return tuple(dataclasses.replace(one, libraries=mapped.read(pid)) for pid, one in sorted(said.items()))

    def judge(self, verdict: Verdict) -> None:
        self.layout.verdicts.mkdir(parents=True, exist_ok=True)
        document = json.dumps(dataclasses.asdict(verdict)).encode()
        switch.write_atomically(self.layout.verdicts / f"{verdict.release}.json", document)

    def prune(self, keep: int, spare: frozenset[str]) -> tuple[str, ...]:
        removed = []
        for release in self._releases()[keep:]:
            if release not in spare:
                folder = self.layout.release(release)
                gone = folder.with_name(f".new-{release}")  # no longer a release from here on, whatever happens
                shutil.rmtree(gone, ignore_errors=True)
                folder.rename(gone)
                shutil.rmtree(gone)
                shutil.rmtree(self.layout.root / "cache" / release, ignore_errors=True)
                (self.layout.verdicts / f"{release}.json").unlink(missing_ok=True)
                removed.append(release)
        return tuple(removed)

    def audit(self, event: dict[str, Any]) -> None:
        audit.append(self.layout.audit, event, self.by)

    def _releases(self) -> tuple[str, ...]:
        """Whole releases, newest first."""
        if not self.layout.releases.is_dir():
            return ()
        whole = [path for path in self.layout.releases.iterdir() if not path.name.startswith(".") and manifest.load(path)]
        return tuple(path.name for path in sorted(whole, key=lambda path: -(path / "manifest.json").stat().st_mtime))

    def _texts(self, release: str) -> dict[str, str]:
        folder = self.layout.release(release)
        return {
            path.relative_to(folder).as_posix(): path.read_text()
            for part in ("units", "env")
            for path in (folder / part).iterdir()
        }

    def _verdicts(self) -> dict[str, Verdict]:
        found = (Verdict(**json.loads(file.read_text())) for file in self.layout.verdicts.glob("*.json"))
        return {verdict.release: verdict for verdict in found}

    def _live(self, slot: str) -> bool:
        try:
            self.ask(slot, "/health", timeout=LIVE)
        except http.NoAnswer:
            return False
        return True

    def _port(self, slot: str) -> int:
        """The slot's port in the release that runs there: the inventory may say another one meanwhile."""
        release = self.instance(slot).release
        made = manifest.load(self.layout.release(release)) if release else None
        known = [*(made.slots if made else ()), *self.entry.slots]
        found = next((one.port for one in known if one.name == slot), None)
        if found is None:
            raise http.NoAnswer(f"nothing was started in the slot {slot}")
        return found

    def _stranger(self, slots: tuple[Slot, ...]) -> str | None:
        """Who holds a port of these slots without being one of this host's servers."""
        held = {port: by for slot in slots for port in (slot.port, slot.nccl_port) if (by := ports.settled(port))}
        ours = set().union(*map(self.processes, self.taken())) if held else set()
        for port, (pid, what) in held.items():
            if pid not in ours:
                who = f"process {pid} ({what})" if pid else what
                return f"port {port} is held by {who}: end it, or choose another port with PORT="
        return None

    def _slot(self, release: str, name: str) -> Slot:
        """The slot, free to start that release's server in."""
        slot = self.manifest(release).slot(name)
        if slot is None:
            raise UserError(f"release {release} has no server {name}")
        if stranger := self._stranger((slot,)):
            raise UserError(stranger)
        return slot
