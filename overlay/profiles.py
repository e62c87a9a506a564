"""An overlay profile: which packages, for which Python, instead of which of a host's."""

from __future__ import annotations

import dataclasses
import fnmatch
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.cli import UserError

PROFILES = Path(__file__).resolve().parent / "profiles"
#: How much of a host a release takes the place of: SGLang's code alone, what is bound to one torch and CUDA too, all.
SCOPES = ("code", "abi", "full")


@dataclass(frozen=True, slots=True)
class Profile:
    """What `profiles/<name>.toml` says, for one of its Pythons."""

    name: str
    python: str  # major.minor, the one that is meant
    platform: str  # operating system and machine, as in `uname`
    pip: str  # the package index that pip needs beside PyPI, in words
    requirements: tuple[str, ...]  # what the lock is made from
    pythons: tuple[str, ...] = ()  # every major.minor that there is a lock for
    engine: str = "gpu"  # cpu: SGLang on a CPU, with the shims of the profile's name beside it
    replaces: tuple[str, ...] = ()  # import roots of a host that the profile takes the place of
    code: tuple[str, ...] = ()  # packages that the patched tree takes the place of: locked, never unpacked
    abi: tuple[str, ...] = ()  # packages that are bound to one torch and CUDA, as patterns of their names
    leave_out: tuple[str, ...] = ()  # paths that wheels bring by mistake: not unpacked

    @property
    def lock(self) -> Path:
        """The hash-pinned closure of the requirements, in pip's format; one a Python where there are several."""
        several = f"-{self.python}" if len(self.pythons) > 1 else ""
        return PROFILES / f"{self.name}{several}.lock"

    def each_python(self) -> tuple[Profile, ...]:
        """The profile for each of its Pythons."""
        return tuple(dataclasses.replace(self, python=python) for python in self.pythons)

    def select(self, names: Iterable[str], scope: str = "full") -> tuple[str, ...]:
        """Those packages that a release of this scope brings. The code itself is the patched tree's. UserError: no such scope."""
        if scope not in SCOPES:
            raise UserError(f"there is no scope {scope!r}; there are: {', '.join(SCOPES)}", code=2)
        if scope == "code":
            return ()
        brought = [name for name in names if name not in self.code]
        return tuple(name for name in brought if scope == "full" or _matches(name, self.abi))


def load(name: str, python: str | None = None) -> Profile:
    """Read a profile, for `python` or its first one. Raises UserError if there is none of that name, or not for that Python."""
    path = PROFILES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in PROFILES.glob("*.toml")))
        raise UserError(f"there is no overlay profile {name!r} in overlay/profiles; there are: {known}")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in tomllib.loads(path.read_text()).items()}
    pythons = fields["python"] if isinstance(fields["python"], tuple) else (fields["python"],)
    if python is not None and python not in pythons:
        raise UserError(f"the overlay profile {name} is not locked for Python {python}; it is for {', '.join(pythons)}")
    return Profile(**{**fields, "pythons": pythons, "python": python or pythons[0]})


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
