"""Runs a script of `checks/` in the engine's interpreter, over a tree: JSON in, JSON out.

The scripts import SGLang and torch, which this environment doesn't have.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import overlay.site
from overlay import engine

_CHECKS = Path(__file__).with_name("checks")


def check(tree: Path, name: str, *, timeout: float = 900, **wanted: object) -> dict:
    """What `checks/<name>.py` says of the SGLang in `tree`; `wanted` is its input, `timeout` is in seconds.

    Raises AssertionError with the end of its output if it fails.
    """
    site = overlay.site.build()
    done = subprocess.run(
        [site.python, _CHECKS / f"{name}.py"],
        env=engine.environment(tree, site.root),
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{name} failed:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])
