"""A hunk goes where its lines are, exactly, or nowhere: there is no fuzz, and what was not found is shown.

`apply` works on bytes in memory and never stops at the first failure: every hunk that found its lines moved, or not at
all, is in the result. Whether moved hunks may be used is the caller's decision (see `patches.apply`: they are not).
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from patches.diff import FileDiff, Hunk, position


@dataclass(frozen=True)
class Shift:
    """A hunk whose lines are there once, `offset` lines below (or, negative, above) the place it names."""

    hunk: Hunk
    offset: int


@dataclass(frozen=True)
class Miss:
    """A hunk that has no place.

    `places` is how often its lines are in the file (0, or 2 and more: then the hunk would be a guess), `nearest` the line
    (1-based) that looks most like its place, `likeness` 0 to 1, `diff` the lines expected against those found there.
    """

    hunk: Hunk
    places: int
    nearest: int
    likeness: float
    diff: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """`data` has all hunks that found a place; it is the patched file only if there are no misses."""

    data: bytes
    shifts: tuple[Shift, ...] = ()
    misses: tuple[Miss, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether every hunk went where it said."""
        return not self.shifts and not self.misses


def split(data: bytes) -> list[bytes]:
    r"""Lines with their newlines. Only `\n` ends a line: a form feed or a carriage return is content."""
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def apply(diff: FileDiff, data: bytes) -> Result:
    """Apply all hunks of `diff` to a file's bytes; a file that does not exist is `b""`, a deleted one comes out as `b""`."""
    lines = split(data)
    out: list[bytes] = []
    shifts: list[Shift] = []
    misses: list[Miss] = []
    cursor = 0
    for hunk in diff.hunks:
        old, new = hunk.old, hunk.new
        wanted = position(hunk.old_start, len(old))
        places = [wanted] if _fits(lines, wanted, cursor, hunk) else []
        if not places and old:
            places = [at for at in range(cursor, len(lines) - len(old) + 1) if _fits(lines, at, cursor, hunk)]
        if len(places) != 1:
            misses.append(_miss(hunk, lines, wanted, len(places)))
            continue
        if places[0] != wanted:
            shifts.append(Shift(hunk, places[0] - wanted))
        out += lines[cursor : places[0]]
        out += new
        cursor = places[0] + len(old)
    out += lines[cursor:]
    return Result(b"".join(out), tuple(shifts), tuple(misses))


def _fits(lines: Sequence[bytes], at: int, cursor: int, hunk: Hunk) -> bool:
    old, new = hunk.old, hunk.new
    if at < cursor or at + len(old) > len(lines) or lines[at : at + len(old)] != old:
        return False
    # A line without a newline can only be the last one, on either side.
    if new and not new[-1].endswith(b"\n") and at + len(old) != len(lines):
        return False
    return bool(old) or at == 0 or lines[at - 1].endswith(b"\n")


def _miss(hunk: Hunk, lines: Sequence[bytes], wanted: int, places: int) -> Miss:
    """The most similar place: lines that are in both vote for where the hunk would begin, difflib judges the best few."""
    old = hunk.old
    where: dict[bytes, list[int]] = {}
    for at, line in enumerate(lines):
        where.setdefault(line, []).append(at)
    votes: Counter[int] = Counter()
    for index, line in enumerate(old):
        for at in where.get(line, ()):
            # Lines such as "    )\n" are everywhere and say little.
            votes[max(0, at - index)] += 1 / len(where[line])
    candidates = sorted(votes, key=lambda at: (-votes[at], abs(at - wanted)))[:8] or [max(0, min(wanted, len(lines) - 1))]

    def likeness(at: int) -> float:
        found = b"".join(lines[at : at + len(old)]).decode("utf-8", "replace")
        return difflib.SequenceMatcher(None, b"".join(old).decode(), found, autojunk=False).quick_ratio()

    best = max(candidates, key=lambda at: (likeness(at), -abs(at - wanted)))
    found = [line.decode("utf-8", "replace").rstrip("\n") for line in lines[best : best + len(old)]]
    expected = [line.decode().rstrip("\n") for line in old]
    diff = tuple(difflib.unified_diff(expected, found, n=3, lineterm=""))[2:]
    return Miss(hunk, places, best + 1, round(likeness(best), 2), diff)
