"""DDTREE through the real engine: the tokens of plain greedy decoding, in the paper's number of verify steps.

Four deliberate breakages, each caught by a test of its own here:

* accept one node too many           `test_caught_accepting_one_too_many`
* a sibling visible in the mask      `test_caught_a_visible_sibling`
* positions by index, not by depth   `test_caught_positions_by_index`
* hidden states in node order        `test_caught_hidden_states_in_node_order`

The first three change the target's tokens. The last one leaves them right and starves the drafter, so what catches it is
the number of verify steps: outputs alone would not.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.engine.checking import SEEDED, SEEDS
from tests.engine.harness import Run, generate, prompts
from tests.engine.test_baseline import DFLASH_STEPS, TEXTS
from tests.engine.test_ddtree_pieces import UTILS, VISIBLE_SIBLING

INFO = "sglang/srt/speculative/dflash_info.py"
WORKER = "sglang/srt/speculative/dflash_worker.py"

#: Verify steps of the paper's own code (arXiv 2604.12989), qwen3-tiny, first 16 prompts, by number of nodes. It counts 128
#: tokens after the one that prefill gives, which SGLang counts as max_new_tokens=129.
PAPER_STEPS = {15: 489, 22: 470, 64: 436}
PAPER_TOKENS = 129


def ddtree(tree: Path, budget: int, tokens: int = 128, **engine: object) -> Run:
    """20 prompts of qwen3-tiny through DDTREE, greedy, fp32."""
    arguments = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": budget, **engine}
    return generate(tree, pair="qwen3-tiny", prompts=prompts("qwen3-tiny")[:20], max_new_tokens=tokens, engine=arguments)


def steps(run: Run) -> int:
    """Verify steps of the first 16 prompts, which are the paper's."""
    return sum(meta["spec_verify_ct"] for meta in run.meta[:16])


@pytest.fixture(scope="module")
def plain(pristine_tree: Path) -> Run:
    """The same prompts without speculation, on SGLang as pinned."""
    return generate(pristine_tree, pair="qwen3-tiny", prompts=prompts("qwen3-tiny")[:20], max_new_tokens=128)


@pytest.mark.parametrize("budget", [4, 15, 22, 64])
def test_tokens_equal_plain_decoding(patched_tree: Path, plain: Run, budget: int) -> None:
    run = ddtree(patched_tree, budget)
    assert run.outputs == plain.outputs
    assert [len(output) for output in run.outputs] == [128] * 20


@pytest.mark.parametrize("budget", PAPER_STEPS)
def test_verify_steps_are_the_papers(patched_tree: Path, budget: int) -> None:
    run = ddtree(patched_tree, budget, tokens=PAPER_TOKENS)
    assert steps(run) == pytest.approx(PAPER_STEPS[budget], rel=0.01)


def test_real_kernels_agree_with_reference_attention(patched_tree: Path) -> None:
    """SGLang's own Triton attention, in the interpreter, takes the tree mask as the reference backend does."""
    arguments = {
        "pair": "qwen3-nano",
        "prompts": TEXTS[:4],
        "max_new_tokens": 24,
        "engine": {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 10},
    }
    plain_torch = generate(patched_tree, **arguments)
    kernels = generate(patched_tree, **arguments, env={"SGLANG_CPU_ATTN": "triton"})
    assert kernels.outputs == plain_torch.outputs
    assert kernels.verify_steps == plain_torch.verify_steps


def test_dflash_stays_what_it_was(pristine_tree: Path, patched_tree: Path) -> None:
    arguments = {
        "pair": "qwen3-tiny",
        "prompts": prompts("qwen3-tiny")[:16],
        "max_new_tokens": 128,
        "engine": {"speculative_algorithm": "DFLASH"},
    }
    before, after = generate(pristine_tree, **arguments), generate(patched_tree, **arguments)
    assert after.outputs == before.outputs
    assert after.verify_steps == before.verify_steps == pytest.approx(DFLASH_STEPS, rel=0.01)


def test_hybrid_recurrent_target_on_the_real_kernels(patched_tree: Path) -> None:
    """SGLang's own kernels for gated delta net layers follow the tree, in the interpreter, as the plain torch ones do."""
    arguments = {"pair": "qwen35-nano", "prompts": TEXTS[:4], "max_new_tokens": 8}
    tree = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8}
    kernels = generate(patched_tree, **arguments, engine=tree, env={"SGLANG_CPU_ATTN": "triton"})
    assert kernels.outputs == generate(patched_tree, **arguments).outputs
    assert kernels.verify_steps == generate(patched_tree, **arguments, engine=tree).verify_steps


def test_a_seeded_sample_is_the_plain_samplers(seeded_tree) -> None:
    """Seeded, the plain sampler is a function of seed, position and logits, so plain decoding and a tree must agree.

    Temperature alone: with a filter the plain sampler sorts first, and two tokens of nearly the same
    probability change places with the batch.
    """
    tree = seeded_tree()
    logprobs = {"request": {"return_logprob": True, "top_logprobs_num": 2}}
    plain = generate(tree, **SEEDS, **logprobs, engine=SEEDED)
    assert all(one != other for one, other in zip(plain.outputs[::2], plain.outputs[1::2], strict=True))
    ddtree = SEEDED | {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8}
    run = generate(tree, **SEEDS, **logprobs, engine=ddtree)
    assert run.outputs == plain.outputs
    assert run.verify_steps < 0.8 * sum(map(len, run.outputs))
    for found, want in zip(run.meta, plain.meta, strict=True):
        # (logprob, token, None) of each token, after the temperature as in plain decoding.
        found, want = ([*meta["output_token_logprobs"], *chain(*meta["output_top_logprobs"])] for meta in (found, want))
        assert [entry[1] for entry in found] == [entry[1] for entry in want]
        assert [entry[0] for entry in found] == pytest.approx([entry[0] for entry in want], abs=1e-3)


def wrong(run: Run, plain: Run) -> int:
    """How many of the 20 outputs differ from plain decoding."""
    return sum(found != right for found, right in zip(run.outputs, plain.outputs, strict=True))


def test_caught_accepting_one_too_many(mutated_tree, plain: Run) -> None:
    broken = mutated_tree(
        UTILS,
        "accept_len = accepted.sum(dim=1, dtype=torch.int32) - 1\n",
        "accept_len = accepted.sum(dim=1, dtype=torch.int32).clamp(max=accepted.shape[1] - 1)\n",
    )
    assert wrong(ddtree(broken, 15), plain) >= 8


def test_caught_a_visible_sibling(mutated_tree, plain: Run) -> None:
    broken = mutated_tree(UTILS, *VISIBLE_SIBLING)
    assert wrong(ddtree(broken, 15), plain) >= 8


def test_caught_positions_by_index(mutated_tree, plain: Run) -> None:
    broken = mutated_tree(
        WORKER,
        "positions = prefix_lens.to(torch.int64).unsqueeze(1) + tree.depths\n",
        "positions = prefix_lens.to(torch.int64).unsqueeze(1) + torch.arange(tree.depths.shape[1])\n",
    )
    assert wrong(ddtree(broken, 15), plain) >= 8


def test_caught_hidden_states_in_node_order(mutated_tree, plain: Run) -> None:
    broken = mutated_tree(
        INFO, "        if self.path_order is not None:\n            hidden", "        if False:\n            hidden"
    )
    run = ddtree(broken, 15)
    assert run.outputs == plain.outputs, "the drafter alone is broken: the target's tokens stay right"
    assert steps(run) > 1.05 * PAPER_STEPS[15]
