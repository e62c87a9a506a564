"""The Python that a profile needs: find one on this machine, and make environments of it without a package of their own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from overlay.profiles import Profile
from tools.cli import UserError


def find(profile: Profile) -> Path:
    """An interpreter of the profile's version: this process's own, or the first on PATH that starts.

    Raises UserError if there is none.
    """
    command = f"python{profile.python}"
    candidates = [getattr(sys, "_base_executable", None), shutil.which(command)]
    for candidate in candidates:
        if candidate and _version(candidate) == profile.python:
            return Path(candidate)
    raise UserError(
        f"the overlay profile {profile.name} needs Python {profile.python}, and {command} is not on PATH; "
        f"install it (Debian: apt-get install {command} {command}-venv)"
    )


def make_environment(profile: Profile, place: Path) -> Path:
    """Make a virtual environment without packages, not even pip, at `place`; returns its interpreter."""
    made = subprocess.run([find(profile), "-m", "venv", "--without-pip", place], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise UserError(f"Python {profile.python} cannot make a virtual environment: {made.stderr.strip()[-300:]}")
    return place / "bin" / "python"


@contextlib.contextmanager
def bare_environment(profile: Profile) -> Iterator[Path]:
    """The interpreter of such an environment that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield make_environment(profile, Path(folder) / "venv")


def _version(interpreter: str) -> str | None:
    """major.minor of an interpreter, None if it doesn't start (a version manager's stub may not)."""
    try:
        asked = subprocess.run(
            [interpreter, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None
