"""Small things about files that several rooms need."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tools.paths import REPO


def sha256(file: Path) -> str:
    """The hash of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def short(path: Path) -> str:
    """A path for messages: relative to the checkout where it lies in it."""
    return str(path.relative_to(REPO)) if path.is_relative_to(REPO) else str(path)
