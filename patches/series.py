"""The series is the folder: every patch in it is listed once, every listed one is there, and all of them could be read.

`patches/<version>/series` names one patch a line, in order; `#` begins a comment. `digest` stands for the whole series:
names, order and bytes.

    series = load()
    series.post_images["sglang/srt/server_args.py"]  # sha256 after the whole series
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from patches.diff import FileDiff
from patches.errors import PatchError
from patches.patch import Patch, parse, split_name
from tools.cli import UserError
from tools.paths import REPO, VERSION

#: The file that lists the patches.
LIST = "series"


@dataclass(frozen=True)
class Step:
    """What one patch does to one file, with the file's sha256 before and after (None: not there)."""

    patch: str
    diff: FileDiff
    pre: str | None
    post: str | None

    def reversed(self) -> Step:
        """The step back."""
        return Step(self.patch, self.diff.reversed(), self.post, self.pre)


def steps(patch: Patch) -> tuple[Step, ...]:
    """What a patch does, file by file."""
    return tuple(
        Step(patch.name, diff, image.pre, image.post) for image, diff in zip(patch.header.images, patch.files, strict=True)
    )


@dataclass(frozen=True)
class Series:
    """All patches of one version, in order."""

    version: str
    patches: tuple[Patch, ...]

    @cached_property
    def digest(self) -> str:
        """sha256 in hex over names and bytes of all patches in order."""
        total = hashlib.sha256()
        for item in self.patches:
            total.update(f"{item.name} {hashlib.sha256(item.data).hexdigest()}\n".encode())
        return total.hexdigest()

    @cached_property
    def chains(self) -> dict[str, tuple[Step, ...]]:
        """For every touched path, sorted, the steps that the series takes it through."""
        found: dict[str, list[Step]] = {}
        for item in self.patches:
            for step in steps(item):
                found.setdefault(step.diff.path, []).append(step)
        return {path: tuple(found[path]) for path in sorted(found)}

    @property
    def pre_images(self) -> dict[str, str | None]:
        """sha256 of every touched file before the series; None: not there."""
        return {path: steps[0].pre for path, steps in self.chains.items()}

    @property
    def post_images(self) -> dict[str, str | None]:
        """sha256 of every touched file after the whole series; None: not there."""
        return {path: steps[-1].post for path, steps in self.chains.items()}


def folder(version: str = VERSION) -> Path:
    """Where a version's series lies."""
    return REPO / "patches" / version


def names(where: Path) -> list[tuple[int, str]]:
    """Line (1-based) and name of each listed patch, in order.

    Raises:
        UserError: there is no series; `PatchError` if the list itself cannot be used.
    """
    path = where / LIST
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise UserError(f"{path} is missing: a version's folder has a series file, which lists its patches") from None
    except UnicodeDecodeError:
        raise PatchError(LIST, None, "is not UTF-8") from None
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        name = line.partition("#")[0].strip()
        if name and name in (known for _, known in found):
            raise PatchError(LIST, number, f"lists {name} a second time")
        if name:
            found.append((number, name))
    return found


def strangers(where: Path) -> Iterator[PatchError]:
    """What is listed and not there, badly named, or there and not listed."""
    listed = names(where)
    for number, name in listed:
        try:
            split_name(name)
        except PatchError as error:
            yield PatchError(LIST, number, f"{name}: {error.reason}")
            continue
        if not (where / name).is_file():
            yield PatchError(LIST, number, f"lists {name}, which is not there: write it, or take the line out")
    known = {name for _, name in listed}
    for path in sorted(where.glob("*.patch")):
        if path.name not in known:
            yield PatchError(path.name, None, f"is in the folder but not in `{LIST}`: list it, or take the file away")


def load(version: str = VERSION, *, where: Path | None = None) -> Series:
    """Read a version's series; `where` is its folder if it is not the repository's own.

    Raises:
        PatchError: the first thing that is wrong (`patches.check` lists all of them).
    """
    where = where or folder(version)
    for error in strangers(where):
        raise error
    return Series(version, tuple(parse(name, (where / name).read_bytes()) for _, name in names(where)))
