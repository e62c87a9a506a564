"""The dead-man's switch around everything that changes what serves, on hosts that a lost connection could leave half way."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.host import Host
from deploy.steps import Step


@dataclass(frozen=True)
class Guard(Step):
    """From here on the host goes back by itself if this side is not heard."""

    name = "guard"
    silence: float
    fallback: str | None

    @property
    def back(self) -> str:
        """What the host does then, as the end of a sentence about it."""
        return f"goes back to {self.fallback}" if self.fallback else "stops its servers"

    def describe(self) -> str:
        back = f"go back to {self.fallback}" if self.fallback else "stop"
        return f"let the host {back} by itself if nothing is heard from here for {self.silence:.0f} s"

    def apply(self, host: Host) -> str:
        host.arm(self.silence)
        return "a timer on the host watches"

    def undo(self, host: Host) -> str | None:
        host.confirm()
        return "the timer is gone"


@dataclass(frozen=True)
class Confirm(Step):
    """The release stays."""

    name = "confirm"

    def describe(self) -> str:
        return "confirm by a fresh connection, so that the release stays"

    def apply(self, host: Host) -> str:
        host.confirm()
        return "the release stays"
