"""Greedy tokens of the two smaller pairs under DDTREE, which are those of plain decoding for every prompt.

`test_ddtree.py` has the same for qwen3-tiny.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.harness import Run, generate
from tests.engine.test_baseline import TEXTS

#: Tokens for each prompt. Plain decoding of the hybrid is real recurrent kernels in Triton's interpreter, which take their time.
TOKENS = {"qwen3-nano": 64, "qwen35-nano": 12}


def run(tree: Path, pair: str, **engine: object) -> Run:
    return generate(tree, pair=pair, prompts=TEXTS, max_new_tokens=TOKENS[pair], engine=engine)


@pytest.mark.parametrize("budget", [4, 15, 22, 64])
@pytest.mark.parametrize("pair", TOKENS)
def test_tokens_equal_plain_decoding(patched_tree: Path, pristine_tree: Path, pair: str, budget: int) -> None:
    plain = run(pristine_tree, pair)
    tree = run(patched_tree, pair, speculative_algorithm="DDTREE", speculative_ddtree_budget=budget)
    assert len(tree.outputs) == 20
    assert tree.outputs == plain.outputs
    assert tree.verify_steps < 0.7 * sum(map(len, plain.outputs))
    # Some paths took an elder sibling's place, so there were nodes with two children and more.
    assert sum(meta["spec_ddtree_off_spine_accepts"] for meta in tree.meta) > 0
