"""The sandbox: a host that is a folder of this machine, with a supervised process instead of a systemd unit.

It runs the same plan as a real host, and holds to the same guarantees; no right beyond those of its user is needed.
"""

from __future__ import annotations

from deploy import instance, staging
from deploy.facts import Instance
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.local import LocalHost
from deploy.manifest import Manifest
from deploy.supervisor import marked
from tools.cli import UserError


class Sandbox(LocalHost):
    """Implements `deploy.host.Host`."""

    entry: Entry

    def processes(self) -> set[int]:
        return set(marked(self.layout.run))

    def stage(self, inputs: Inputs) -> Manifest:
        return staging.stage(inputs, self.layout)

    def arm(self, silence: float) -> None:
        """Nothing: the controller can't lose this machine."""

    def confirm(self) -> None:
        """Nothing: see `arm`."""

    def close(self) -> None:
        """Nothing is open."""

    def start(self, release: str) -> Instance:
        if stranger := self._stranger(self.manifest(release).port):
            raise UserError(stranger)
        return instance.start(self.layout.release(release) / "units" / "engine.json", self.layout.run)

    def stop(self) -> bool:
        return instance.stop(self.layout.run, self.entry.limits.drain)

    def instance(self) -> Instance:
        return instance.inspect(self.layout.run)

    def log(self, lines: int) -> list[str]:
        try:
            with open(self.layout.log, "rb") as file:
                file.seek(max(0, file.seek(0, 2) - lines * 400))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []
