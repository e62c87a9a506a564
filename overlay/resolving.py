"""What uv resolves: for each package its version and the one wheel that the profile's Python would install, with its address.

uv lists every wheel that fits; the choice among them is pip's, by the order of the tags that the Python and the C library
of a host accept.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import uv
from packaging import tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from overlay import indexes, pip
from overlay.profiles import Profile
from tools.cli import UserError

#: The newest C library that a wheel may ask for, 2.x: what the pinned SGLang's own wheel asks for.
_GLIBC = 34
_PLATFORM = f"x86_64-manylinux_2_{_GLIBC}"


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel on an index or in a folder."""

    name: str
    version: str
    sha256: str
    file: str
    address: str  # URL, or a path
    size: int | None  # bytes, where the index tells


def resolve(profile: Profile, requirements: Iterable[str], *, closure: bool = True) -> tuple[Wheel, ...]:
    """The wheels for these requirements, by name; with `closure` also everything that they need in turn.

    Raises UserError if there is no such set, or no wheel of one of them for the profile's Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, made = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        wanted.write_text("".join(f"{line}\n" for line in requirements))
        found = indexes.of_pip()
        done = subprocess.run(
            [
                *(uv.find_uv_bin(), "pip", "compile", "--quiet", "--no-config", "--format", "pylock.toml", "--no-header"),
                *("--python", sys.executable, "--python-version", profile.python, "--python-platform", _PLATFORM),
                *("--only-binary", ":all:", "--output-file", str(made), str(wanted)),
                *(() if closure else ("--no-deps",)),
                *(("--no-index",) if found.offline else ()),
            ],
            env=found.for_uv(),
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if done.returncode != 0:
            raise _failure(done.stderr, profile)
        packages = tomllib.loads(made.read_text()).get("packages", [])
    ranks = {tag: rank for rank, tag in enumerate(accepted(profile.python))}
    return tuple(sorted((_best(package, ranks, profile) for package in packages), key=lambda wheel: wheel.name))


def accepted(python: str) -> tuple[tags.Tag, ...]:
    """The tags that a Python (major.minor) on an x86-64 Linux host accepts, the best first."""
    version = tuple(int(part) for part in python.split("."))
    legacy = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
    platforms = []
    for minor in range(_GLIBC, 4, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
        platforms += [legacy[minor]] if minor in legacy else []
    platforms.append("linux_x86_64")
    return (
        *tags.cpython_tags(version, platforms=platforms),
        *tags.compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
    )


def _best(package: dict, ranks: dict[tags.Tag, int], profile: Profile) -> Wheel:
    fitting = []
    for entry in package.get("wheels", ()):
        address = entry.get("url") or entry["path"]
        file = entry.get("name") or Path(unquote(urlsplit(address).path)).name
        _, _, build, accepts = parse_wheel_filename(file)
        rank = min((ranks[tag] for tag in accepts if tag in ranks), default=None)
        if rank is not None:
            fitting.append((rank, tuple(-part if isinstance(part, int) else part for part in build), file, address, entry))
    if not fitting:
        raise UserError(
            f"{package['name']} {package['version']} has no wheel for Python {profile.python} on x86-64 Linux, which the "
            f"overlay profile {profile.name} needs"
        )
    _, _, file, address, entry = min(fitting, key=lambda item: item[:3])
    name = canonicalize_name(package["name"])
    return Wheel(name, package["version"], entry["hashes"]["sha256"], file, address, entry.get("size"))


def _failure(stderr: str, profile: Profile) -> UserError:
    local = re.search(r"no version of (?P<name>[\w.-]+)==(?P<version>[^\s,]*\+\w+)", " ".join(stderr.split()))
    if local:
        return pip.failure(f"No matching distribution found for {local['name']}=={local['version']}", profile)
    said = re.sub(r"[\u2500-\u257f\u00d7\u25b6]+", " ", stderr)
    return UserError(
        f"uv finds no set of packages for the overlay profile {profile.name} on Python {profile.python}: "
        + " ".join(re.sub(r"://[^/\s@]*@", "://", said).split())[-600:]
    )
