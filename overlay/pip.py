"""How pip is called, and what its failures mean in one sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from overlay.profiles import Profile
from tools.cli import UserError

_NOT_FOUND = re.compile(r"(?:No matching distribution found for|satisfies the requirement) (?P<wanted>[^\s(]+)")
#: A version with a local part ("2.13.0+cpu") is on an index of its own, never on PyPI.
_LOCAL_VERSION = re.compile(r"==[^\s;]+\+")


def command(interpreter: Path, *arguments: str) -> list[str]:
    """This process's pip, working for another interpreter that has no pip, with the user's own pip settings."""
    return [
        *(sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check", "--no-input"),
        *arguments,
    ]


def failure(stderr: str, profile: Profile) -> UserError:
    """What went wrong, from pip's standard error."""
    missing = _NOT_FOUND.search(stderr)
    if missing and _LOCAL_VERSION.search(missing["wanted"]):
        return UserError(
            f"pip does not find {missing['wanted']}: add {profile.pip} to pip, by setting PIP_EXTRA_INDEX_URL "
            "to the address that PyTorch's installation page gives for CPU, and run this again"
        )
    if missing:
        return UserError(f"pip does not find {missing['wanted']}, which the overlay profile {profile.name} pins")
    if "DO NOT MATCH THE HASHES" in stderr:
        return UserError(
            f"pip found a file whose hash is not the one in {profile.lock.name}, and installed nothing: "
            + " ".join(stderr.strip().split())[-400:]
        )
    lines = [line for line in stderr.strip().splitlines() if line.startswith("ERROR")] or stderr.strip().splitlines()
    return UserError(f"pip failed for the overlay profile {profile.name}: {' '.join(lines)[-400:] or 'without a word'}")
