"""What the commands say: a line a patch or a file, then what is wrong, each with its place; JSON for machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.table import Table

from patches.apply import Report
from patches.check import Checked, Finding, Verdict
from patches.diff import Hunk
from tools.cli import out


def checked(result: Checked, folder: str) -> None:
    """Print the dry run: one line a patch, then the findings as `file:line: sentence`."""
    table = Table.grid(padding=(0, 2))
    for column in ("left", "right", "right", "right", "left"):
        table.add_column(justify=column, no_wrap=True)  # type: ignore[arg-type]
    for verdict in result.verdicts:
        word, style = ("ok", "green") if verdict.ok else (_verdict(verdict), "red")
        table.add_row(
            verdict.name,
            f"{verdict.files} files" if verdict.files != 1 else "1 file",
            f"+{verdict.added}",
            f"-{verdict.removed}",
            word,
            style=style,
        )
    if result.verdicts:
        out.print(table)
    for finding in [*result.findings, *(finding for verdict in result.verdicts for finding in verdict.findings)]:
        out.print(_sentence(finding, folder), markup=False)
    count = len(result.verdicts)
    if result.ok:
        total = f"{count} patches" if count != 1 else "1 patch"
        done = "headers, order, exact apply, exact reverse, compile: all well" if count else "the series is empty"
        out.print(f"{total} on sglang {result.version}: {done}", markup=False)


def checked_json(result: Checked, folder: str) -> dict[str, Any]:
    """The dry run for machines."""
    return {
        "version": result.version,
        "ok": result.ok,
        "patches": [
            {
                "name": verdict.name,
                "ok": verdict.ok,
                "files": verdict.files,
                "added": verdict.added,
                "removed": verdict.removed,
                "waits_for": verdict.waits_for,
                "findings": [_item(finding, folder) for finding in verdict.findings],
            }
            for verdict in result.verdicts
        ],
        "findings": [_item(finding, folder) for finding in result.findings],
    }


def applied(report: Report) -> list[str]:
    """Lines of an apply or reverse: every file that is not as it should be, with all that explains it."""
    lines: list[str] = []
    for finding in report.findings:
        lines.append(f"{finding.outcome.value:9} {finding.path}" + (f": {finding.note}" if finding.note else ""))
        for name, shift in finding.shifts:
            lines.append(f"    {name}:{shift.hunk.line}: {_range(shift.hunk)} has its lines {shift.offset:+d} lines away")
        for failure in finding.failures:
            miss = failure.miss
            where = (
                f"finds {miss.places} places"
                if miss.places
                else f"finds no place; most like it is line {miss.nearest} ({miss.likeness:.0%})"
            )
            lines.append(f"    {failure.patch}:{miss.hunk.line}: {_range(miss.hunk)} {where}: - expected, + found")
            lines += (f"        {line}" for line in miss.diff)
    return lines


def applied_json(report: Report) -> dict[str, Any]:
    """An apply or reverse for machines."""
    return {
        "ok": report.ok,
        "written": list(report.written),
        "files": [
            {
                "path": finding.path,
                "outcome": finding.outcome.value,
                "note": finding.note,
                "shifts": [{"patch": name, "line": shift.hunk.line, "offset": shift.offset} for name, shift in finding.shifts],
                "failures": [
                    {
                        "patch": failure.patch,
                        "line": failure.miss.hunk.line,
                        "places": failure.miss.places,
                        "nearest": failure.miss.nearest,
                        "likeness": failure.miss.likeness,
                        "diff": list(failure.miss.diff),
                    }
                    for failure in finding.failures
                ],
            }
            for finding in report.findings
        ],
    }


def _range(hunk: Hunk) -> str:
    return replace(hunk, section="").head


def _verdict(verdict: Verdict) -> str:
    return f"waits for {verdict.waits_for}" if verdict.waits_for and not verdict.findings else "FAILS"


def _place(finding: Finding, folder: str) -> str:
    # A touched file of the package is named by its own path, everything else lies in the series folder.
    return finding.file if finding.file.startswith(("sglang/", "snapshot")) else f"{folder}/{finding.file}"


def _sentence(finding: Finding, folder: str) -> str:
    return f"{_place(finding, folder)}:{f'{finding.line}:' if finding.line else ''} {finding.reason}"


def _item(finding: Finding, folder: str) -> dict[str, Any]:
    return {"file": _place(finding, folder), "line": finding.line, "reason": finding.reason}
