"""What a benchmark leaves: one JSON document, from which the page and the comparisons are made.

    {"format", "when", "host", "pair", "load": {...},
     "servers": [{"algorithm", "budget", "name", "release", "arguments", "start", "cells": [...], "trees": [...]}]}

A cell is as `measure.cell` makes it. `equal` of a server says how many greedy outputs are those without speculation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deploy.inventory import NONE
from tools.errors import UserError

#: A document of another one is refused.
FORMAT = 1
SPREAD = ("median", "low", "high")


def load(file: Path) -> dict[str, Any]:
    """The document in `file`."""
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise UserError(f"{file} can't be read: {error.strerror}", 2) from None
    except ValueError as error:
        raise UserError(f"{file} is not JSON ({error}): name the .json file that `make bench` wrote", 2) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or not _whole(found):
        raise UserError(f"{file} is not a measurement of this benchmark (format {FORMAT}): name what `make bench` wrote", 2)
    return found


def _whole(found: dict[str, Any]) -> bool:
    """Whether everything is there that a comparison needs."""
    try:
        for cell in by_key(found).values():
            speeds = [one["tokens"] / one["seconds"] for one in cell["rounds"]]
            if not speeds or not all(speed > 0 for speed in [*speeds, *(cell["tokens_per_second"][key] for key in SPREAD)]):
                return False
        return isinstance(found["load"], dict) and {"host", "when"} <= found.keys()
    except (AttributeError, LookupError, TypeError, ZeroDivisionError):
        return False


def by_key(found: dict[str, Any]) -> dict[tuple[str, float, int], dict[str, Any]]:
    """Its cells, by server's name, temperature and batch size."""
    return {(server["name"], cell["temperature"], cell["batch"]): cell for server in found["servers"] for cell in server["cells"]}


def compare_outputs(servers: list[dict[str, Any]]) -> None:
    """Let every server that speculates say how many of its greedy outputs, at all batch sizes, are those of the target."""
    plain = next((server for server in servers if server["algorithm"] == NONE), None)
    wanted = {cell["batch"]: cell.get("outputs") for cell in plain["cells"] if "outputs" in cell} if plain else {}
    for server in servers:
        if server is plain:
            continue
        pairs = [
            (want, have)
            for cell in server["cells"]
            if "outputs" in cell and cell["batch"] in wanted
            for want, have in zip(wanted[cell["batch"]], cell["outputs"], strict=True)
        ]
        server["equal"] = {"outputs": sum(want == have for want, have in pairs), "of": len(pairs)} if pairs else None
