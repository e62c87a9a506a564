"""DDTREE in pages of more than one slot, where the accepted path's KV moves: the tokens of plain decoding.

One deliberate breakage, caught by a test of its own here:

* the path's KV stays where it was   `test_caught_kv_that_stays`
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.harness import generate
from tests.engine.test_baseline import TEXTS
from tests.engine.test_ddtree_batches import PROMPTS, TOKENS, ddtree, plain

INFO = "sglang/srt/speculative/dflash_info.py"


@pytest.mark.parametrize(("page_size", "budget"), [(4, 22), (16, 4), (64, 15)])
def test_tokens_equal_plain_decoding(patched_tree: Path, page_size: int, budget: int) -> None:
    """Trees longer and shorter than a page, as requests arrive, and again with their prefixes in the cache."""
    run = ddtree(patched_tree, calls=2, every=2, page_size=page_size, speculative_ddtree_budget=budget)
    assert run.outputs == plain(patched_tree).outputs * 2
    # Whole pages of a prompt of 64 tokens, but for its last token.
    assert [meta["cached_tokens"] for meta in run.meta[len(PROMPTS) :]] == [63 // page_size * page_size] * len(PROMPTS)
    assert run.verify_steps < 0.5 * 2 * TOKENS * len(PROMPTS)


def test_retraction_in_a_small_pool(patched_tree: Path) -> None:
    run = ddtree(patched_tree, page_size=8, max_total_tokens=400, schedule_conservativeness=0.1)
    assert run.outputs == plain(patched_tree).outputs
    assert sum(meta["total_retractions"] for meta in run.meta) > 0


def test_a_hybrid_targets_attention_layers(patched_tree: Path) -> None:
    arguments = {"pair": "qwen35-nano", "prompts": TEXTS, "max_new_tokens": 12}
    tree = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 15}
    run = generate(patched_tree, **arguments, engine=tree | {"page_size": 16})
    assert run.outputs == generate(patched_tree, **arguments).outputs
    assert sum(meta["spec_ddtree_off_spine_accepts"] for meta in run.meta) > 0


def test_caught_kv_that_stays(mutated_tree, patched_tree: Path) -> None:
    broken = mutated_tree(INFO, "path_slots = out_cache_loc.gather(1, self.path_order)", "path_slots = out_cache_loc")
    found = ddtree(broken, page_size=16).outputs
    assert sum(a != b for a, b in zip(found, plain(patched_tree).outputs, strict=True)) >= 8
