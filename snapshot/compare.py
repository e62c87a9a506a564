"""A directory against the pin, file by file: every file is read, so one changed byte is seen."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest
from pathlib import Path

from snapshot.manifest import PACKAGE, Manifest
from tools.files import sha256


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How a tree differs from the pin; sorted posix paths below the import root."""

    same: list[str]
    changed: list[str]
    missing: list[str]
    foreign: list[str]

    @property
    def equal(self) -> bool:
        return not (self.changed or self.missing or self.foreign)

    @property
    def differences(self) -> dict[str, str]:
        """Each differing path with its kind, in order of path."""
        kinds = ("changed", "missing", "foreign")
        return dict(sorted((path, kind) for kind in kinds for path in getattr(self, kind)))


def compare(root: Path, manifest: Manifest) -> Comparison:
    """Compare the package below the import root `root`; bytecode that Python left there does not count.

    A link or a device where the pin has a file counts as changed: its bytes are not this tree's own.
    """
    found = {path.relative_to(root).as_posix(): path for path in (root / PACKAGE).rglob("*") if _counts(path, root)}
    same, changed = [], []
    for name in sorted(found.keys() & manifest.files.keys()):
        path = found[name]
        own = path.is_file() and not path.is_symlink() and sha256(path) == manifest.files[name]
        (same if own else changed).append(name)
    missing = sorted(manifest.files.keys() - found.keys())
    foreign = sorted(found.keys() - manifest.files.keys())
    return Comparison(same, changed, missing, foreign)


def _counts(path: Path, root: Path) -> bool:
    bytecode = "__pycache__" in path.relative_to(root).parts or path.suffix == ".pyc"
    return not bytecode and (path.is_symlink() or not path.is_dir())


def first_difference(ours: bytes, theirs: bytes) -> int:
    """The number, from 1, of the first line in which two different files differ."""
    lines = zip_longest(ours.splitlines(keepends=True), theirs.splitlines(keepends=True))
    return next(number for number, (a, b) in enumerate(lines, start=1) if a != b)
