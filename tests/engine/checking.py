"""Runs a script of `checks/` in the engine's interpreter, over a tree: JSON in, JSON out.

The scripts import SGLang and torch, which this environment doesn't have.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine import harness

_CHECKS = Path(__file__).with_name("checks")


def check(tree: Path, name: str, *, timeout: float = 900, **wanted: object) -> dict:
    """What `checks/<name>.py` says of the SGLang in `tree`; `wanted` is its input, `timeout` is in seconds.

    Raises AssertionError with the end of its output if it fails.
    """
    return harness.script(tree, _CHECKS / f"{name}.py", dict(wanted), timeout)
