"""The sandbox: a host that is a folder of this machine, with supervised processes instead of systemd units.

It runs the same plan as a real host, and holds to the same guarantees; no right beyond those of its user is needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from deploy import instance, staging
from deploy.facts import Instance
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.local import LocalHost
from deploy.manifest import Manifest
from deploy.supervisor import marked


class Sandbox(LocalHost):
    """Implements `deploy.host.Host`."""

    entry: Entry
    progress: Callable[[int, int], None] | None = None  # nothing is pushed

    def poll(self) -> None:
        """Nothing, unless somebody sets it."""

    def taken(self) -> set[str]:
        return {path.parent.name for path in self.layout.runs.glob("*/lock")}

    def processes(self, slot: str) -> set[int]:
        return set(marked(self.layout.run(slot)))

    def stage(self, inputs: Inputs) -> Manifest:
        return staging.stage(inputs, self.layout)

    def arm(self, silence: float) -> None:
        """Nothing: the controller can't lose this machine."""

    def confirm(self) -> None:
        """Nothing: see `arm`."""

    def close(self) -> None:
        """Nothing is open."""

    def start(self, slot: str, release: str) -> Instance:
        self._slot(release, slot)
        return instance.start(self.layout.release(release) / "units" / f"{slot}.json", self.layout.run(slot))

    def stop(self, slot: str) -> bool:
        return instance.stop(self.layout.run(slot), self.entry.limits.drain)

    def retire(self, slot: str) -> bool:
        ran = self.stop(slot)
        shutil.rmtree(self.layout.run(slot), ignore_errors=True)
        return ran

    def instance(self, slot: str) -> Instance:
        self.poll()
        return instance.inspect(self.layout.run(slot))

    def log(self, slot: str, lines: int) -> list[str]:
        try:
            with open(self.layout.log(slot), "rb") as file:
                file.seek(max(0, file.seek(0, 2) - lines * 400))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []
