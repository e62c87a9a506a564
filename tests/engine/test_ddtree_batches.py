"""How requests come together under DDTREE: arrivals, chunks, cache hits, retraction, aborts, the context limit, a draft window.

Each equal to plain decoding token for token, and each with the engine's own check of its memory pools after every step.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine.harness import Run, generate, prompts

DDTREE = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 15}
PROMPTS = prompts("qwen3-tiny")[:20]
TOKENS = 40


def plain(tree: Path, tokens: int = TOKENS) -> Run:
    return generate(tree, pair="qwen3-tiny", prompts=PROMPTS, max_new_tokens=tokens)


def ddtree(tree: Path, *, tokens: int = TOKENS, calls: int = 1, every: int = 0, abort_after: int = 0, **engine) -> Run:
    run = {"calls": calls, "every": every, "abort_after": abort_after, "engine": DDTREE | engine}
    return generate(tree, pair="qwen3-tiny", prompts=PROMPTS, max_new_tokens=tokens, **run)


def test_arrivals_chunks_and_a_second_call(patched_tree: Path) -> None:
    """Requests join while others decode, prompts are cut into chunks of 48, and the second call finds them in the cache."""
    run = ddtree(patched_tree, calls=2, every=2, chunked_prefill_size=48)
    assert run.outputs == plain(patched_tree).outputs * 2
    hits = [meta["cached_tokens"] for meta in run.meta]
    # At first what prompts begin with alike, then all of a prompt but its last token.
    assert max(hits[:20]) < 8
    assert hits[20:] == [63] * 20


def test_retraction_in_a_small_pool(patched_tree: Path) -> None:
    """A block of 16 beside a tree of 5: the scheduler must leave room for the wider one."""
    for budget in (4, 15):
        run = ddtree(patched_tree, speculative_ddtree_budget=budget, max_total_tokens=420)
        assert run.outputs == plain(patched_tree).outputs
        assert sum(meta["total_retractions"] for meta in run.meta) > 0


def test_aborts_leave_the_others_alone(patched_tree: Path) -> None:
    run, right = ddtree(patched_tree, every=1, abort_after=3), plain(patched_tree)
    aborted = [meta["finish_reason"]["type"] == "abort" for meta in run.meta]
    assert 3 <= sum(aborted) <= 7
    for gone, found, want in zip(aborted, run.outputs, right.outputs, strict=True):
        assert gone or found == want


def test_up_to_the_context_limit(patched_tree: Path) -> None:
    """Without a length of their own requests run until the context is full; the last trees and blocks reach beyond it."""
    context = 105
    run = {
        "pair": "qwen3-tiny",
        "prompts": [prompt[: 64 - at % 8] for at, prompt in enumerate(PROMPTS)],
        "max_new_tokens": TOKENS,
        "sampling": {"max_new_tokens": None},
    }
    free = generate(patched_tree, **run, engine={"context_length": context})
    ends = [meta["finish_reason"] for meta in free.meta]
    assert ends == [{"type": "length", "length": context - 2 - len(prompt)} for prompt in run["prompts"]]
    for budget in (4, 64):
        tree = generate(patched_tree, **run, engine=DDTREE | {"speculative_ddtree_budget": budget, "context_length": context})
        assert tree.outputs == free.outputs
        assert [meta["finish_reason"] for meta in tree.meta] == ends


def test_draft_window(patched_tree: Path) -> None:
    run = ddtree(patched_tree, speculative_dflash_draft_window_size=24)
    assert run.outputs == plain(patched_tree).outputs
    assert run.verify_steps > ddtree(patched_tree).verify_steps
