"""The steps of a rollout: small objects that say what they do, do it, and take it back.

`describe` is what a plan shows and what `apply` will do: the same object. `undo` runs after a failure, last step first, on
every step that was begun; it takes back what is there to take back, and says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from deploy.host import Host


class StepFailed(Exception):
    """A step did not reach its end; one sentence on what was seen."""


@dataclass(frozen=True)
class Step(ABC):
    """One step. `name` is a word for tables; `disruptive` steps change what serves."""

    name: ClassVar[str]
    disruptive: ClassVar[bool] = False

    @property
    def instance(self) -> str | None:
        """The slot of the one server that it is about; None: of the host."""
        return getattr(self, "slot", None)

    @abstractmethod
    def describe(self) -> str:
        """What will be done, as an imperative sentence."""

    def details(self) -> tuple[str, ...]:
        """Lines below the sentence in a plan."""
        return ()

    @abstractmethod
    def apply(self, host: Host) -> str:
        """Do it; what was done, in a few words. Raises `StepFailed` or `UserError`."""

    def undo(self, host: Host) -> str | None:
        """Take it back; what was done, or None if there was nothing to do."""
        return None
