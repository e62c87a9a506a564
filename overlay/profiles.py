"""An overlay profile: which packages, for which Python, instead of which of a host's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.cli import UserError

PROFILES = Path(__file__).resolve().parent / "profiles"


@dataclass(frozen=True, slots=True)
class Profile:
    """What `profiles/<name>.toml` says."""

    name: str
    python: str  # major.minor
    platform: str  # operating system and machine, as in `uname`
    pip: str  # the package index that pip needs beside PyPI, in words
    replaces: tuple[str, ...]  # import roots that the profile takes the place of
    requirements: tuple[str, ...]  # what the lock is made from

    @property
    def lock(self) -> Path:
        """The hash-pinned closure of the requirements, in pip's format."""
        return PROFILES / f"{self.name}.lock"


def load(name: str) -> Profile:
    """Read a profile. Raises UserError if there is none of that name."""
    path = PROFILES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in PROFILES.glob("*.toml")))
        raise UserError(f"there is no overlay profile {name!r} in overlay/profiles; there are: {known}")
    fields = tomllib.loads(path.read_text())
    fields["replaces"] = tuple(fields["replaces"])
    fields["requirements"] = tuple(fields["requirements"])
    return Profile(**fields)
