"""Findings for people: what, where, what you would get, what mends it. Styles on a terminal, the same words elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from overlay.doctor.facts import Facts
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
#: Lines of evidence that are shown; the rest is counted, and whole in JSON.
_EVIDENCE = 8


def findings(console: Console, found: tuple[Finding, ...]) -> None:
    """All of them: notes in one line, the rest in full."""
    for one in found:
        console.print(Text(f"{one.severity:8}", _STYLES[one.severity]) + Text(f"{one.rule:4}{one.title}"))
        if one.severity is Severity.NOTE:
            continue
        for number, item in enumerate(one.evidence[:_EVIDENCE]):
            _line(console, "seen" if number == 0 else "", _evidence(item))
        if len(one.evidence) > _EVIDENCE:
            _line(console, "", f"and {len(one.evidence) - _EVIDENCE} more (--json has all)")
        _line(console, "you get", one.consequence)
        _line(console, "mend", one.remedy)


def summary(facts: Facts, found: tuple[Finding, ...], subject: str) -> str:
    """One line: what was examined, and how many findings of each kind."""
    parts = [f"{len(facts.distributions)} packages"]
    if facts.kind != "lock":
        parts.append(f"{len(facts.libraries)} libraries")
    parts.append(common.torch_name(facts) if facts.version("torch") else "no torch")
    counts = {severity: sum(one.severity is severity for one in found) for severity in Severity}
    said = ", ".join(f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts.items())
    return f"{subject} ({', '.join(parts)}): {said}"


def _evidence(item: Evidence) -> str:
    owner = f" [{item.owner}]" if item.owner else ""
    symbol = f" ({item.symbol})" if item.symbol else ""
    return f"{item.file}: {item.what}{symbol}{owner}" if item.file else f"{item.what}{symbol}{owner}"


def _line(console: Console, label: str, text: str) -> None:
    console.print(Text(f"        {label:8}", "dim") + Text(text))
