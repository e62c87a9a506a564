"""A finding says what is wrong, where it can be seen, what the user would meet, and what mends it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad: the service won't work, may not work, or is only told."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a finding can be seen."""

    what: str  # one line
    file: str | None = None  # relative to the examined root
    symbol: str | None = None  # as in the file
    owner: str | None = None  # the package that brought the file


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    rule: str  # R1 to R14; R0 for what can't be read
    severity: Severity
    title: str  # one sentence
    evidence: tuple[Evidence, ...]
    consequence: str  # the error as the user would meet it
    remedy: str  # exact packages and versions

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)
