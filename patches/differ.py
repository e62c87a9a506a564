"""The diff of two texts depends on the two texts alone: not on git's version, its configuration, or Python's.

That is why git is not asked. Its algorithms are readable, but their heuristics changed between releases (indent
heuristic, hunk heads), and a patch that another version writes differently is noise in a review. This is patience diff: lines
that are once in both texts are the anchors, in their longest common order; between anchors the same again, and where there
is none, difflib. A block that could begin one or more lines earlier or later begins where the indentation is least.

    file_diff("sglang/a.py", b"one\n", b"two\n")
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from patches.diff import FileDiff, Hunk, Kind, Line
from patches.exact import split

CONTEXT = 3
#: Above this many comparisons (lines times lines) a stretch without anchors is replaced as a whole.
_LIMIT = 4_000_000
_SECTION = re.compile(rb"\s*(?:(?:async\s+)?def|class)\s+\w")

#: A stretch of difference: old[i1:i2] becomes new[j1:j2].
Change = tuple[int, int, int, int]


def file_diff(path: str, old: bytes | None, new: bytes | None) -> FileDiff:
    """The diff that turns `old` into `new`; None is a file that is not there.

    Raises:
        ValueError: with the reason, if the change is none or cannot be written as a diff of text.
    """
    if old == new:
        raise ValueError("nothing is changed")
    for side, word in ((old, "old"), (new, "new")):
        if side == b"" and None in (old, new):
            raise ValueError("an empty file cannot be created or deleted by a diff: give it a line")
        if side is None:
            continue
        try:
            side.decode()
        except UnicodeDecodeError:
            raise ValueError(f"the {word} file is not UTF-8: binary files cannot be part of the series") from None
        if b"\0" in side:
            raise ValueError(f"the {word} file has NUL bytes: binary files cannot be part of the series")
    kind = Kind.CREATE if old is None else Kind.DELETE if new is None else Kind.MODIFY
    hunks = tuple(_hunks(split(old or b""), split(new or b"")))
    if any("\r" in line.text for hunk in hunks for line in hunk.lines):
        raise ValueError("a line at the change ends in CRLF (or has a carriage return): patches have LF only")
    return FileDiff(path, kind, hunks)


def _hunks(a: Sequence[bytes], b: Sequence[bytes]) -> Iterator[Hunk]:
    group: list[Change] = []
    for change in changes(a, b):
        if group and change[0] - group[-1][1] > 2 * CONTEXT:
            yield _hunk(a, b, group)
            group = []
        group.append(change)
    if group:
        yield _hunk(a, b, group)


def _hunk(a: Sequence[bytes], b: Sequence[bytes], group: Sequence[Change]) -> Hunk:
    start = max(0, group[0][0] - CONTEXT)
    end = min(len(a), group[-1][1] + CONTEXT)
    new_start = group[0][2] - (group[0][0] - start)
    new_length = group[-1][3] + (end - group[-1][1]) - new_start
    lines: list[Line] = []
    cursor = start
    for i1, i2, j1, j2 in group:
        lines += (Line(" ", line.decode()) for line in a[cursor:i1])
        lines += (Line("-", line.decode()) for line in a[i1:i2])
        lines += (Line("+", line.decode()) for line in b[j1:j2])
        cursor = i2
    lines += (Line(" ", line.decode()) for line in a[cursor:end])
    # As diff has it: a side with no lines names the line before it.
    return Hunk(start + 1 if end > start else start, new_start + 1 if new_length else new_start, tuple(lines), section(a, start))


def section(lines: Sequence[bytes], start: int) -> str:
    """The nearest `def` or `class` above a hunk, to tell a reader where he is."""
    for at in range(start - 1, -1, -1):
        if _SECTION.match(lines[at]):
            text = lines[at].decode().strip()[:72].strip()
            return text if text.isprintable() else ""
    return ""


def changes(a: Sequence[bytes], b: Sequence[bytes]) -> list[Change]:
    """All stretches of difference, in order, each as far apart from the next as can be."""
    found: list[Change] = []
    i = j = 0
    for ai, bj, size in [*_matches(a, b), (len(a), len(b), 0)]:
        if i < ai or j < bj:
            found.append((i, ai, j, bj))
        i, j = ai + size, bj + size
    settled: list[Change] = []
    for index, change in enumerate(found):
        above = settled[-1][1] + 1 if settled else 0
        below = found[index + 1][0] - 1 if index + 1 < len(found) else len(a)
        settled.append(_settle(a, b, change, change[0] - above, below - change[1]))
    return settled


def _matches(a: Sequence[bytes], b: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Blocks (i, j, size) with a[i:i+size] == b[j:j+size], ascending, none empty, none touching on both sides."""
    blocks: list[tuple[int, int, int]] = []
    todo = [(0, len(a), 0, len(b))]
    while todo:
        alo, ahi, blo, bhi = todo.pop()
        head = 0
        while alo + head < ahi and blo + head < bhi and a[alo + head] == b[blo + head]:
            head += 1
        if head:
            blocks.append((alo, blo, head))
        alo, blo = alo + head, blo + head
        tail = 0
        while ahi - tail > alo and bhi - tail > blo and a[ahi - tail - 1] == b[bhi - tail - 1]:
            tail += 1
        ahi, bhi = ahi - tail, bhi - tail
        if tail:
            blocks.append((ahi, bhi, tail))
        if alo == ahi or blo == bhi:
            continue
        anchors = _anchors(a, b, alo, ahi, blo, bhi)
        if anchors:
            for ai, bj in anchors:
                todo.append((alo, ai, blo, bj))
                alo, blo = ai, bj
            todo.append((alo, ahi, blo, bhi))
        elif (ahi - alo) * (bhi - blo) <= _LIMIT:
            matcher = difflib.SequenceMatcher(None, a[alo:ahi], b[blo:bhi], autojunk=False)
            blocks += ((alo + i, blo + j, size) for i, j, size in matcher.get_matching_blocks() if size)
    merged: list[tuple[int, int, int]] = []
    for i, j, size in sorted(blocks):
        if merged and (merged[-1][0] + merged[-1][2], merged[-1][1] + merged[-1][2]) == (i, j):
            i, j, before = merged.pop()
            size += before
        merged.append((i, j, size))
    return merged


def _anchors(a: Sequence[bytes], b: Sequence[bytes], alo: int, ahi: int, blo: int, bhi: int) -> list[tuple[int, int]]:
    """Lines that are once in either range: the longest run of them that ascends in both."""
    in_a, in_b = _once(a, alo, ahi), _once(b, blo, bhi)
    pairs = sorted((at, in_b[line]) for line, at in in_a.items() if line in in_b)
    # Patience sorting: tops[k] is the least end of an ascending run of k + 1 pairs.
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, bj) in enumerate(pairs):
        k = bisect_left(tops, bj)
        before.append(ends[k - 1] if k else -1)
        tops[k : k + 1] = [bj]
        ends[k : k + 1] = [index]
    run: list[tuple[int, int]] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        run.append(pairs[index])
        index = before[index]
    return run[::-1]


def _once(lines: Sequence[bytes], lo: int, hi: int) -> dict[bytes, int]:
    at: dict[bytes, int] = {}
    twice: set[bytes] = set()
    for index in range(lo, hi):
        line = lines[index]
        if line in at:
            twice.add(line)
        at[line] = index
    return {line: index for line, index in at.items() if line not in twice}


def _settle(a: Sequence[bytes], b: Sequence[bytes], change: Change, up_room: int, down_room: int) -> Change:
    """Move a block of added (or of removed) lines to where it reads best; the rooms keep it off the changes beside it."""
    i1, i2, j1, j2 = change
    if i1 < i2 and j1 < j2:
        return change
    lines, lo, hi = (b, j1, j2) if j1 < j2 else (a, i1, i2)
    up = down = 0
    while up < up_room and lines[lo - up - 1] == lines[hi - up - 1]:
        up += 1
    while down < down_room and lines[lo + down] == lines[hi + down]:
        down += 1
    shift = min(range(-up, down + 1), key=lambda by: (_indent(lines[lo + by]), -by))
    return i1 + shift, i2 + shift, j1 + shift, j2 + shift


def _indent(line: bytes) -> float:
    text = line.strip()
    return len(line) - len(line.lstrip()) if text else float("inf")
