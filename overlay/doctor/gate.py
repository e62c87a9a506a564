"""The doctor before a switch: a site root with an error is not switched to."""

from __future__ import annotations

from pathlib import Path

from overlay.doctor import command, rules
from overlay.doctor.facts import Facts
from overlay.doctor.finding import Severity
from tools.cli import UserError


def require(root: Path) -> None:
    """Pass a site root of this machine, or raise UserError with its errors."""
    judge(command.gather(root), str(root))


def judge(facts: Facts, subject: str) -> None:
    """Pass facts, or raise UserError that names each error with what mends it."""
    errors = [one for one in rules.examine(facts) if one.severity is Severity.ERROR]
    if not errors:
        return
    said = "; ".join(f"{one.rule}: {one.title} (mend: {one.remedy})" for one in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    raise UserError(f"the doctor finds {count} in {subject}, so nothing is changed: {said}{more}")
