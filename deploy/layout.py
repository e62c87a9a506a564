"""Where things lie under a host's root. Pure paths, the same on every host. Under `root`:

releases/<id>/{site,units,env,manifest.json,probes.json}   never written again once they have this name
current, previous                                          symlinks to releases
verdicts/<id>.json                                         what the gates said
run/<slot>/                                                a server: state, log, attestations
lock, audit.jsonl
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The paths under `root`."""

    root: Path

    @property
    def releases(self) -> Path:
        return self.root / "releases"

    def release(self, release: str) -> Path:
        return self.releases / release

    @property
    def current(self) -> Path:
        return self.root / "current"

    @property
    def previous(self) -> Path:
        return self.root / "previous"

    @property
    def verdicts(self) -> Path:
        return self.root / "verdicts"

    @property
    def runs(self) -> Path:
        return self.root / "run"

    def run(self, slot: str) -> Path:
        return self.runs / slot

    def log(self, slot: str) -> Path:
        return self.run(slot) / "log"

    def attest(self, slot: str) -> Path:
        return self.run(slot) / "attest"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def audit(self) -> Path:
        return self.root / "audit.jsonl"
