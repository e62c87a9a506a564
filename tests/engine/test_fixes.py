"""The bugs of plain 0.5.11 that DDTREE stands on: each is there in the pinned tree, and gone in the patched one."""

from __future__ import annotations

from pathlib import Path

from tests.engine.checking import check
from tests.engine.harness import generate
from tests.engine.test_baseline import TEXTS


def test_the_drafter_keeps_its_rope_theta(pristine_tree: Path, patched_tree: Path) -> None:
    """qwen3-nano's drafter was trained with base 1e4; with 1e6 its drafts are hardly ever accepted, losslessly."""
    arguments = {
        "pair": "qwen3-nano",
        "prompts": TEXTS,
        "max_new_tokens": 48,
        "engine": {"speculative_algorithm": "DFLASH"},
    }
    lost, kept = generate(pristine_tree, **arguments), generate(patched_tree, **arguments)
    assert lost.outputs == kept.outputs
    tokens = sum(map(len, kept.outputs))
    assert tokens / lost.verify_steps < 2
    assert tokens / kept.verify_steps > 4


def test_a_verify_sets_the_mamba_track_indices(pristine_tree: Path, patched_tree: Path) -> None:
    """Of each request the track buffer that the scheduler will read next; the pinned tree leaves last prefill's."""
    assert check(pristine_tree, "mamba_track") == {"indices": "stale", "mask": "stale"}
    assert check(patched_tree, "mamba_track") == {"indices": [11, 20], "mask": None}


def test_the_verify_mask_fits_at_the_context_limit(pristine_tree: Path, patched_tree: Path) -> None:
    """Widths of full batches within their own width of the limit, DFLASH's 16 among them: the pinned tree holds none."""
    batches = [[23, [500]], [23, [500] * 4], [128, [400]], [16, [500]]]
    assert check(pristine_tree, "mask_buffer", context=512, batches=batches) == [23, 23, 128, 16]
    assert check(patched_tree, "mask_buffer", context=512, batches=batches) == []
