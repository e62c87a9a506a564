"""Medians with their spread, and whether two sets of rounds differ by more than chance. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

#: Differences that chance would make more rarely than this are called significant.
LEVEL = 0.05


@dataclass(frozen=True)
class Spread:
    """The median of some rounds, and the least and greatest of them."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Of one value or more."""
    return Spread(statistics.median(values), min(values), max(values))


def chance(a: Sequence[float], b: Sequence[float]) -> float:
    """How probable ranks as uneven as these are, if `a` and `b` are drawn alike: Mann and Whitney's test, exact, two-sided.

    A tie counts half, rounded towards no difference.
    """
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    tail = int(min(wins, len(a) * len(b) - wins) + 0.5)
    arrangements = sum(_arrangements(len(a), len(b), u) for u in range(tail + 1))
    return min(1.0, 2 * arrangements / comb(len(a) + len(b), len(a)))


def rounds_needed() -> int:
    """With fewer rounds on each side no difference can be significant."""
    return next(n for n in range(1, 100) if 2 / comb(2 * n, n) < LEVEL)


@cache
def _arrangements(m: int, n: int, u: int) -> int:
    """Orders of m and n values in which just `u` pairs have the first kind's value above the second's."""
    if u < 0 or m < 0 or n < 0:
        return 0
    if m == 0 or n == 0:
        return int(u == 0)
    return _arrangements(m - 1, n, u - n) + _arrangements(m, n - 1, u)
