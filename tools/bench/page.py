"""The page: one HTML file that holds the document and draws it by itself, without network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("page.html")
_PLACE = "/*DOCUMENT*/null"


def render(document: dict[str, Any]) -> str:
    """The page of a document. Greedy outputs are left out: nothing of them is drawn."""
    slim = {**document, "servers": [{**server, "cells": _without_outputs(server["cells"])} for server in document["servers"]]}
    # "<" could end the script; in JSON it may be written as an escape wherever it can stand.
    text = json.dumps(slim, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    template = TEMPLATE.read_text(encoding="utf-8")
    if template.count(_PLACE) != 1:
        raise ValueError(f"{TEMPLATE.name} must have {_PLACE} once")
    return template.replace(_PLACE, text)


def _without_outputs(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in cell.items() if key != "outputs"} for cell in cells]
