"""Prune: old releases go, once the new one is proved; never the current or the previous one."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.host import Host
from deploy.steps import Step


@dataclass(frozen=True)
class Prune(Step):
    """Keep the newest releases."""

    name = "prune"
    keep: int
    spare: frozenset[str]

    def describe(self) -> str:
        return f"keep the {self.keep} newest releases, and current and previous"

    def apply(self, host: Host) -> str:
        removed = host.prune(self.keep, self.spare)
        return f"removed {', '.join(removed)}" if removed else "nothing to remove"
