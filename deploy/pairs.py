"""The model pairs that ship with the repository: a target, its drafter, and probes for the semantic gate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from deploy import digest
from tools.errors import UserError

ROOT = Path(__file__).with_name("pairs")


@dataclass(frozen=True)
class Pair:
    """`target` and `drafter` are model folders in Hugging Face's format."""

    name: str
    folder: Path

    @property
    def target(self) -> Path:
        return self.folder / "target"

    @property
    def drafter(self) -> Path:
        return self.folder / "drafter"

    @property
    def probes(self) -> Path:
        return self.folder / "probes.json"

    def digest(self) -> str:
        """sha256 over names and bytes of both models' files."""
        return digest.of_folders(self.target, self.drafter)


@dataclass(frozen=True)
class Probes:
    """Prompts, and what the target alone answers to them, greedily. Token ids; each answer has `new_tokens` of them."""

    target: str  # sha256 over the target's files, when they were recorded
    new_tokens: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def find(name: str) -> Pair:
    """The pair of that name; a `UserError` that lists the known ones otherwise."""
    folder = ROOT / name
    if not (folder / "target" / "config.json").is_file():
        known = ", ".join(sorted(path.parent.parent.name for path in ROOT.glob("*/target/config.json")))
        raise UserError(f"there is no model pair {name!r} in {ROOT.name}/; known: {known or 'none'}", 2)
    return Pair(name, folder)


def load_probes(file: Path) -> Probes:
    """The probes in `file`."""
    try:
        raw = json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{file} is missing: record it with `python -m deploy record`") from None
    rows = raw["probes"]
    inputs, outputs = (tuple(tuple(row[key]) for row in rows) for key in ("input_ids", "output_ids"))
    return Probes(raw["target"], raw["new_tokens"], inputs, outputs)
