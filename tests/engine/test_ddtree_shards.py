"""The draft head's top-k over 1, 2, 4 and 8 real gloo ranks: the whole vocabulary's, and the same bits on every rank.

All that a tree is made of comes from one all-gather, so trees can't differ between ranks; what the target predicts does not,
and is broadcast (`checks/verify_ranks.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.checking import check

#: Vocabularies with padding, with added tokens, with ranks that have fewer tokens than k or none at all.
SIZES = [
    {"vocabulary": 512, "added": 0, "padding": 64, "k": 22},
    {"vocabulary": 37, "added": 0, "padding": 64, "k": 22},
    {"vocabulary": 37, "added": 5, "padding": 8, "k": 22},
    {"vocabulary": 1000, "added": 16, "padding": 64, "k": 64},
    {"vocabulary": 40, "added": 8, "padding": 64, "k": 40},
]
CASES = [size | {"ties": ties} for size in SIZES for ties in (False, True)]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_sharded_top_k_is_the_whole_vocabularys(patched_tree: Path, ranks: int) -> None:
    answers = check(patched_tree, "head_topk", ranks=ranks, cases=CASES)
    assert answers == [{"same": True, "right": True, "found": None}] * len(CASES)
