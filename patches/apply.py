"""All of the series or none of it: the outcome of every file is known before the first byte is written.

A target is patched only if each touched file has the pre-image that the series was made for; then hunks go exactly where
they say. On any other file hunks may well find their lines, perhaps moved, and that is reported (`drifted`), but nothing is
written: the lines around a hunk are three, the file that the patch was tested with is all of them. There is no fuzz and no
option for it. The way on is `make snapshot-check`, which says who differs, or a series made for that other tree.

    report = apply(series, site)     # site holds sglang/
    report.ok, report.written        # a second call: ok, and () because everything is there already
    reverse(series, site)            # the very bytes from before

git takes no part in this: a repository around the target, which lets `git apply` skip files in silence, changes nothing here.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from patches import exact, write
from patches.diff import Kind
from patches.errors import PatchError
from patches.exact import Miss, Shift
from patches.series import Series, Step


class Outcome(Enum):
    """What became of one touched file.

    `applied`: it had the pre-image, and all hunks went exactly where they say.
    `already`: it has the post-image, there is nothing to do.
    `drifted`: it has neither, yet every hunk finds its lines exactly once; not written.
    `conflict`: it has neither, and at least one hunk finds no place or several.
    `absent`: it is not there, and the series would change it.
    `foreign`: something else is in its place: a file where the series creates one, a link, a folder.
    """

    APPLIED = "applied"
    ALREADY = "already"
    DRIFTED = "drifted"
    CONFLICT = "conflict"
    ABSENT = "absent"
    FOREIGN = "foreign"

    @property
    def ok(self) -> bool:
        """Whether the file ends up as the series wants it."""
        return self in (Outcome.APPLIED, Outcome.ALREADY)


@dataclass(frozen=True)
class Failure:
    """A hunk without a place: which patch, its line of `@@` there, and what was found instead."""

    patch: str
    miss: Miss


@dataclass(frozen=True)
class Finding:
    """One touched file: its outcome, and whatever explains it.

    `data` is the file's new content (None: it goes), meaningful for `applied` alone.
    """

    path: str
    outcome: Outcome
    note: str = ""
    shifts: tuple[tuple[str, Shift], ...] = ()
    failures: tuple[Failure, ...] = ()
    data: bytes | None = None


@dataclass(frozen=True)
class Report:
    """All touched files, sorted by path; `written` are those that were written (nothing, unless `ok`)."""

    findings: tuple[Finding, ...]
    written: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the target is, or would be, exactly the patched (or the original) tree."""
        return all(finding.outcome.ok for finding in self.findings)

    @property
    def changes(self) -> dict[str, bytes | None]:
        """New content of the files that are not yet as they should be; None: the file goes."""
        return {finding.path: finding.data for finding in self.findings if finding.outcome is Outcome.APPLIED}


class NotPlain(Exception):
    """What lies at a path is no plain file of the tree; the text says what it is."""


def sha256(data: bytes | None) -> str | None:
    """sha256 in hex; None for a file that is not there."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def judge(chains: Mapping[str, tuple[Step, ...]], read: Callable[[str], bytes | None]) -> Report:
    """The outcome of every file, all in memory; `read` gives a path's bytes, None, or raises `NotPlain`.

    Raises:
        PatchError: a patch does not lead from its pre-image to its post-image, so the series itself is wrong.
    """
    return Report(tuple(_judge(path, steps, read) for path, steps in sorted(chains.items())))


def _judge(path: str, steps: tuple[Step, ...], read: Callable[[str], bytes | None]) -> Finding:
    try:
        data = read(path)
    except NotPlain as reason:
        return Finding(path, Outcome.FOREIGN, str(reason))
    pre, post, here = steps[0].pre, steps[-1].post, sha256(data)
    if here == post:
        return Finding(path, Outcome.ALREADY)
    if here == pre:
        return Finding(path, Outcome.APPLIED, data=advance(path, steps, data))
    if data is None:
        return Finding(path, Outcome.ABSENT, f"{steps[0].patch} changes it")
    if pre is None:
        return Finding(path, Outcome.FOREIGN, f"{steps[0].patch} creates it, a file with other content is there")

    note = next((f"it is as {step.patch} leaves it, part of the series is applied" for step in steps if step.post == here), "")
    shifts: list[tuple[str, Shift]] = []
    failures: list[Failure] = []
    for step in steps:
        result = exact.apply(step.diff, data)
        shifts += ((step.patch, shift) for shift in result.shifts)
        failures += (Failure(step.patch, miss) for miss in result.misses)
        data = result.data
    if failures:
        return Finding(path, Outcome.CONFLICT, note, tuple(shifts), tuple(failures))
    note = note or "every hunk would apply, but it is not the file that the series was made for"
    return Finding(path, Outcome.DRIFTED, note, tuple(shifts))


def advance(path: str, steps: tuple[Step, ...], data: bytes | None) -> bytes | None:
    """Take one file through steps whose first pre-image it has.

    Raises:
        PatchError: a step's pre-image, hunks or post-image do not fit; the line is that of the hunk or of the diff.
    """
    for step in steps:
        if sha256(data) != step.pre:
            raise PatchError(step.patch, step.diff.line, f"{path} does not have the Pre-Image at this point of the series")
        result = exact.apply(step.diff, data or b"")
        if result.misses:
            miss = result.misses[0]
            raise PatchError(
                step.patch, miss.hunk.line, f"the hunk does not apply to {path}; line {miss.nearest} is most like its place"
            )
        if result.shifts:
            shift = result.shifts[0]
            raise PatchError(
                step.patch, shift.hunk.line, f"the hunk's lines are {shift.offset:+d} lines from where it says, in {path}"
            )
        data = None if step.diff.kind is Kind.DELETE else result.data
        if sha256(data) != step.post or (step.diff.kind is Kind.DELETE and result.data):
            raise PatchError(step.patch, step.diff.line, f"{path} does not have the Post-Image after this patch")
    return data


def backwards(series: Series) -> dict[str, tuple[Step, ...]]:
    """The chains that take the series back."""
    return {path: tuple(step.reversed() for step in reversed(steps)) for path, steps in series.chains.items()}


def reader(root: Path) -> Callable[[str], bytes | None]:
    """Read plain files under `root`, never through a link."""

    def read(path: str) -> bytes | None:
        *folders, _ = path.split("/")
        here = root
        for name in folders:
            here = here / name
            try:
                mode = os.lstat(here).st_mode
            except FileNotFoundError:
                return None
            if stat.S_ISLNK(mode):
                raise NotPlain(
                    f"{here.relative_to(root)} is a symbolic link to {os.readlink(here)}: a patched tree has plain folders only"
                )
            if not stat.S_ISDIR(mode):
                raise NotPlain(f"{here.relative_to(root)} is no folder")
        here = root / path
        try:
            mode = os.lstat(here).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(mode):
            raise NotPlain(f"it is a symbolic link to {os.readlink(here)}, and what it points to is not written through it")
        if not stat.S_ISREG(mode):
            raise NotPlain("it is no plain file")
        return here.read_bytes()

    return read


def apply(series: Series, root: Path, *, dry_run: bool = False) -> Report:
    """Bring the import root `root` (it holds `sglang/`) to the patched state, in place.

    The deployer's way for a tree that exists; a tree of one's own is `patches.tree`. Nothing is written unless every file's
    outcome is `applied` or `already`; see `patches.write` for what holds while writing.

    Raises:
        UserError: writing failed; the files that had been replaced are back (or code 4 and their names).
    """
    return _run(series.chains, root, dry_run)


def reverse(series: Series, root: Path, *, dry_run: bool = False) -> Report:
    """The way back: `applied` then means taken back, `already` that the file is as it was before the series."""
    return _run(backwards(series), root, dry_run)


def _run(chains: Mapping[str, tuple[Step, ...]], root: Path, dry_run: bool) -> Report:
    root = root.resolve(strict=True)
    report = judge(chains, reader(root))
    if dry_run or not report.ok:
        return report
    write.write(root, report.changes)
    return Report(report.findings, tuple(report.changes))
