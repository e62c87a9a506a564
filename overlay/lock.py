"""The lock of a profile: every package with its version and the one wheel's sha256, and nothing about where it came from.

`renew` lets pip resolve the profile's requirements for the profile's Python and writes down what pip would install.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from overlay import pip, python
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
        raise UserError(f"{path} is missing; make it with: python -m overlay lock {path.stem}")
    pins = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(
                f"{path}:{number}: not a pin of the form name==version --hash=sha256:...; "
                f"renew the lock with: python -m overlay lock {path.stem}"
            )
        pins.append(Pin(**match.groupdict()))
    return tuple(pins)


def digest(path: Path) -> str:
    """The sha256 of a lock's bytes, which stands for everything that is installed from it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def renew(profile: Profile) -> tuple[Pin, ...]:
    """Resolve the requirements anew and write the lock. Raises UserError if pip can't resolve them."""
    with python.bare_environment(profile) as interpreter:
        command = pip.command(interpreter, "install", "--dry-run", "--ignore-installed", "--report", "-")
        done = subprocess.run(
            [*command, "--quiet", "--only-binary", ":all:", *profile.requirements], capture_output=True, text=True
        )
    if done.returncode != 0:
        raise pip.failure(done.stderr, profile)
    pins = tuple(sorted((_pin(item) for item in json.loads(done.stdout)["install"]), key=lambda pin: pin.name))
    header = f"# Made by `python -m overlay lock {profile.name}` from {profile.name}.toml: do not edit.\n"
    profile.lock.write_text(header + "".join(f"{pin}\n" for pin in pins))
    return pins


def _pin(item: dict) -> Pin:
    name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
    return Pin(name, item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"])
