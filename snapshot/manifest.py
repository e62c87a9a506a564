"""The pin: the name and hash of one wheel, and the hash of every file of the package inside.

A manifest is written once for a version, by `python -m snapshot pin`, and read ever after; the same wheel always gives the
same bytes. It is JSON with one file a line, so that two versions can be compared with any diff.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path

from tools.cli import UserError
from tools.files import sha256
from tools.paths import REPO, VERSION

PACKAGE = "sglang"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What one version consists of; `files` maps a posix path below the import root to the sha256 of its bytes."""

    version: str
    wheel: str
    wheel_sha256: str
    files: dict[str, str]

    def dump(self) -> str:
        """The manifest file's text."""
        fields = {"version": self.version, "wheel": self.wheel, "wheel_sha256": self.wheel_sha256}
        return json.dumps({**fields, "count": len(self.files), "files": self.files}, indent=1) + "\n"


def location(version: str) -> Path:
    """Where the manifest of `version` lies in the repository."""
    return REPO / "snapshot" / version / "manifest.json"


def load(version: str = VERSION) -> Manifest:
    """The pin of `version`; a `UserError` if there is none or it is not whole."""
    file = location(version)
    try:
        data = json.loads(file.read_text())
        count = data.pop("count")
        manifest = Manifest(**data)
    except FileNotFoundError:
        raise UserError(f"sglang {version} is not pinned here; pin it with: python -m snapshot pin WHEEL") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not a manifest ({error}); restore it from git") from error
    if len(manifest.files) != count:
        raise UserError(f"{file} lists {len(manifest.files)} files but says {count}; restore it from git")
    return manifest


def of_wheel(wheel: Path, version: str) -> Manifest:
    """The pin of a wheel file, made from its bytes."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(n for n in archive.namelist() if n.startswith(f"{PACKAGE}/") and not n.endswith("/"))
        files = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}
    return Manifest(version, wheel.name, sha256(wheel), files)
