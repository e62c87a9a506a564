"""The lock of a profile: every package with its version and the one wheel's sha256, and nothing about where it came from.

`renew` lets uv resolve the profile's requirements for the profile's Python, and writes down what an installer would take.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from overlay import resolving
from overlay.profiles import Profile
from tools.cli import UserError

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


def read(path: Path) -> tuple[Pin, ...]:
    """The lock's packages. Raises UserError naming the line that is not `name==version --hash=sha256:...`."""
    if not path.is_file():
        raise UserError(f"{path} is missing; make it with: make lock PROFILE={path.stem.split('-')[0]}")
    pins = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(
                f"{path}:{number}: not a pin of the form name==version --hash=sha256:...; "
                f"renew the lock with: make lock PROFILE={path.stem.split('-')[0]}"
            )
        pins.append(Pin(**match.groupdict()))
    return tuple(pins)


def digest(path: Path) -> str:
    """The sha256 of a lock's bytes, which stands for everything that is installed from it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def renew(profile: Profile) -> tuple[Pin, ...]:
    """Resolve the requirements anew for the profile's Python and write the lock. Raises UserError if there is no such set."""
    wheels = resolving.resolve(profile, profile.requirements)
    pins = tuple(Pin(wheel.name, wheel.version, wheel.sha256) for wheel in wheels)
    header = f"# Made by `make lock PROFILE={profile.name}` from {profile.name}.toml for Python {profile.python}: do not edit.\n"
    profile.lock.write_text(header + "".join(f"{pin}\n" for pin in pins))
    return pins


def changes(before: Iterable[Pin], after: Iterable[Pin]) -> tuple[str, ...]:
    """What differs between two locks, one line a package, by name: `+` new, `-` gone, else what it was and is."""
    old, new = ({pin.name: pin for pin in pins} for pins in (before, after))
    lines = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is None:
            lines.append(f"+ {name} {now.version}")
        elif now is None:
            lines.append(f"- {name} {was.version}")
        elif was.version != now.version:
            lines.append(f"  {name} {was.version} -> {now.version}")
        elif was.sha256 != now.sha256:
            lines.append(f"  {name} {was.version}, another file")
    return tuple(lines)
