"""Two measurements side by side: the cells that both have, their ratio, and whether it is more than chance."""

from __future__ import annotations

import json as codec
from typing import Any

from tools.bench import document, stats
from tools.bench import run as running
from tools.cli import UserError, err, out


def rows(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each cell that both have: medians with spread, `ratio` of b to a, `chance`, and `verdict` in a word."""
    first, second = document.by_key(a), document.by_key(b)
    found = []
    for key in first:
        if key not in second:
            continue
        speeds = [[one["tokens"] / one["seconds"] for one in cell["rounds"]] for cell in (first[key], second[key])]
        chance = stats.chance(*speeds)
        ratio = second[key]["tokens_per_second"]["median"] / first[key]["tokens_per_second"]["median"]
        few = min(map(len, speeds)) < stats.rounds_needed()
        verdict = "too few rounds" if few else ("faster" if ratio > 1 else "slower") if chance < stats.LEVEL else "no difference"
        name, temperature, batch = key
        found.append(
            {
                "server": name,
                "temperature": temperature,
                "batch": batch,
                "a": first[key]["tokens_per_second"],
                "b": second[key]["tokens_per_second"],
                "ratio": ratio,
                "chance": chance,
                "verdict": verdict,
            }
        )
    return found


def run(a: dict[str, Any], b: dict[str, Any], *, json: bool) -> int:
    """Show the comparison."""
    found = rows(a, b)
    if not found:
        raise UserError("the two measurements have no server, temperature and batch size in common")
    if json:
        print(codec.dumps(found))
        return 0
    head = ["", "T", "batch", "A tokens/s", "B tokens/s", "B / A", "chance", ""]
    lines = [
        [
            row["server"],
            f"{row['temperature']:g}",
            str(row["batch"]),
            *(f"{row[side]['median']:.0f} ({row[side]['low']:.0f}-{row[side]['high']:.0f})" for side in "ab"),
            f"{row['ratio']:.3f}",
            f"{row['chance']:.3f}",
            row["verdict"],
        ]
        for row in found
    ]
    running.show(f"A: {_of(a)}; B: {_of(b)}; medians (least to greatest)", head, lines)
    out.print(
        f"chance: how often rounds that are alike would be ranked as unevenly; under {stats.LEVEL:g} is called a difference. "
        "Servers were measured one after the other, so what else ran on the machine is in it.",
        markup=False,
    )
    if a["load"] != b["load"]:
        differ = ", ".join(key for key in a["load"] if a["load"][key] != b["load"].get(key))
        err.print(f"warning: the two were asked differently ({differ})", markup=False)
    return 0


def _of(found: dict[str, Any]) -> str:
    return f"{found['host']} {found['when']}"
