"""A lock as facts: names and versions, with the requirements that are known of the few packages that decide.

A lock has no metadata at hand. What torch's builds and sglang 0.5.11 require is in `known.REQUIRES`, so the set that
no installer can make (sglang 0.5.11 with a torch of CUDA 12) is seen before anything is downloaded.
"""

from __future__ import annotations

import re
from pathlib import Path

from overlay.doctor import cuda, known
from overlay.doctor.dist import normal
from overlay.doctor.facts import Distribution, Facts

_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?==(?P<version>[^\s;\\]+)")


def read(path: Path) -> Facts:
    """The facts of a lock in pip's or uv's format: `name==version`, with hashes, markers and comments passed over."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        match = _PIN.match(line)
        if match:
            name, version = normal(match["name"]), match["version"]
            found.append(Distribution(name, version, known.REQUIRES.get((name, version))))
    torch = next((one.version for one in found if one.name == "torch"), "")
    built = cuda.of_label(torch) or ((13, 0) if torch == known.PINNED["torch"] else None)  # PyPI's 2.11.0 is cu130
    return Facts(kind="lock", root=str(path), distributions=tuple(found), cuda=cuda.dotted(built) if built else None)
