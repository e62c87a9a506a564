"""What a release is made of, in its `manifest.json`: enough to judge a server, and to go back, without the checkout.

The manifest is a function of the release's inputs alone: two stagings of the same inputs give the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from deploy.slot import Slot

#: The layout of the document; a release of another one is not whole.
FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """A release's identity, and what its server must say of itself."""

    release: str
    version: str  # of SGLang
    algorithm: str
    budget: int
    model: str  # the served name
    slots: tuple[Slot, ...]  # its servers
    inputs: dict[str, str]  # input -> its digest; the release id is made from these
    files: dict[str, str]  # path under site/ -> sha256: sglang as patched, the overlay's shims, the hook
    touched: dict[str, str | None]  # files of the series -> sha256 of the post-image; None: deleted
    linked: int  # number of the overlay's files under site/
    scope: str = "full"  # what it brings in place of the host's: code, abi (all that is bound to torch and CUDA), full
    format: int = FORMAT

    def slot(self, name: str) -> Slot | None:
        """Its server of that name."""
        return next((slot for slot in self.slots if slot.name == name), None)


def load(release: Path) -> Manifest | None:
    """The manifest of the release folder; None if it is not there, or not one of ours."""
    try:
        raw = json.loads((release / "manifest.json").read_text())
        slots = tuple(Slot(**{**slot, "gpus": tuple(slot["gpus"])}) for slot in raw.pop("slots"))
        manifest = Manifest(slots=slots, **raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if manifest.format == FORMAT and manifest.release == release.name else None


def dump(manifest: Manifest) -> bytes:
    """The document, one stable text for equal manifests."""
    return (json.dumps(dataclasses.asdict(manifest), indent=1, sort_keys=True) + "\n").encode()
