"""The memory that DDTREE's trees take: what it logs against the tensors' own sizes, and what it refuses.

Deliberate breakages, each caught by a test of its own here:

* the drafter's KV is forgotten      `test_caught_a_forgotten_drafter`
* the draft block is forgotten       `test_caught_a_forgotten_draft_block`
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.harness import EngineFailure, Run, generate, prompts

MEMORY = "sglang/srt/speculative/ddtree_memory.py"
#: Makes an engine log the bytes of the tensors that its pools really have, and how many slots they are for.
TELL_TENSORS = (
    '    logger.info(\n        "%s",\n        measure_ddtree_memory',
    "    pools = [getattr(x.token_to_kv_pool, 'full_kv_pool', x.token_to_kv_pool) for x in (target, drafter)]\n"
    "    real = [sum(t.nbytes for t in x.k_buffer + x.v_buffer) for x in pools]\n"
    "    mamba = getattr(target.req_to_token_pool, 'mamba_pool', None)\n"
    "    cache = mamba and mamba.mamba_cache\n"
    "    states = cache and [cache.intermediate_ssm, *cache.intermediate_conv_window]\n"
    "    real += [sum(t.nbytes for t in states), states[0].shape[1] * states[0].shape[2]] if states else [0, 1]\n"
    "    logger.info('tensors %s slots %s', real, pools[0].k_buffer[0].shape[0])\n"
    '    logger.info(\n        "%s",\n        measure_ddtree_memory',
)
LINE = re.compile(
    r"DDTREE memory: (\d+) bytes a node \(KV of target (\d+) and drafter (\d+), recurrent states (\d+)\), (\d+) bytes a request"
    r" \(verify width (\d+), draft block (\d+), mask up to (\d+)\), (\d+) bytes \(.*\) for (\d+) requests with (\d+) of CUDA"
    r" graphs; the KV pool has (\d+) slots\."
)


def run(tree: Path, pair: str = "qwen3-tiny", budget: int = 22, **engine: object) -> Run:
    given = ["The quick brown fox", "One two three four"] if pair == "qwen35-nano" else prompts(pair)[:20]
    more = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": budget, "log_level": "info"} | engine
    return generate(tree, pair=pair, prompts=given, max_new_tokens=8, engine=more)


def logged(done: Run) -> list[int]:
    found = LINE.search(done.log.read_text())
    assert found, "no line tells the memory"
    return [int(number) for number in found.groups()]


#: Bytes of a node in the target's and the drafter's KV and in the recurrent states, by hand: layers x (K and V) x heads x head
#: size x 4, and layers x (2 heads of 32 x 32 in fp32, 128 channels of 3 inputs in fp32).
BY_HAND = {
    "qwen3-tiny": (4 * 2 * 2 * 64 * 4, 2 * 2 * 2 * 64 * 4, 0),
    "qwen35-nano": (2 * 2 * 2 * 32 * 4, 1024, 2 * (2 * 32 * 32 * 4 + 128 * 3 * 4)),
}


@pytest.mark.parametrize(("pair", "budget"), [("qwen3-tiny", 22), ("qwen3-tiny", 4), ("qwen35-nano", 8)])
def test_logged_bytes_are_the_tensors(mutated_tree, pair: str, budget: int) -> None:
    """Per node, per request and in all, from the pools' own tensors: 8 requests, contexts up to 512, no graphs on a CPU."""
    done = run(mutated_tree(MEMORY, *TELL_TENSORS), pair, budget)
    told = re.search(r"tensors \[(\d+), (\d+), (\d+), (\d+)\] slots (\d+)", done.log.read_text())
    assert told
    target, drafter, states, nodes, slots = (int(number) for number in told.groups())
    node, target_kv, drafter_kv, recurrent, request, width, block, mask, total, requests, graphs, pool = logged(done)
    assert (target_kv * slots, drafter_kv * slots, recurrent * nodes) == (target, drafter, states)
    assert (target_kv, drafter_kv, recurrent) == BY_HAND[pair]
    assert node == target_kv + drafter_kv + recurrent
    assert (width, requests, graphs, pool) == (budget + 1, 8, 0, slots - 1)
    assert mask == width * (512 + width)
    assert request == max(width, block) * (target_kv + drafter_kv) + width * recurrent + mask
    assert total == requests * request


def test_a_pool_too_small_is_refused_with_what_fits(patched_tree: Path) -> None:
    """300 slots don't hold 16 requests of 24; either way out that the sentence names starts, and gives the same tokens."""
    small = {"max_total_tokens": 300, "max_running_requests": 16}
    with pytest.raises(EngineFailure) as refusal:
        run(patched_tree, **small)
    named = re.search(r"--max-running-requests (\d+) or --speculative-ddtree-budget (\d+) would fit", str(refusal.value))
    assert named
    requests, budget = (int(number) for number in named.groups())
    assert (requests, budget) == (12, 16)
    plain = run(patched_tree, speculative_algorithm=None, speculative_ddtree_budget=22)
    assert run(patched_tree, **small | {"max_running_requests": requests}).outputs == plain.outputs
    assert run(patched_tree, budget=budget, **small).outputs == plain.outputs


def test_recurrent_states_too_large_are_refused_before_they_are_made(patched_tree: Path) -> None:
    with pytest.raises(EngineFailure, match=r"recurrent states of DDTREE's nodes take .* at most --max-running-requests \d+"):
        run(patched_tree, "qwen35-nano", 8, max_running_requests=10_000_000)


def test_caught_a_forgotten_drafter(mutated_tree) -> None:
    broken = mutated_tree(MEMORY, "draft_kv=_kv_slot_bytes(drafter.token_to_kv_pool)", "draft_kv=0")
    assert logged(run(broken))[2] == 0, "so test_logged_bytes_are_the_tensors would fail"


def test_caught_a_forgotten_draft_block(mutated_tree) -> None:
    broken = mutated_tree(MEMORY, "slots = max(self.width, self.block_size)", "slots = self.width")
    _, target_kv, drafter_kv, _, request, width, block, mask, *_ = logged(run(broken, budget=4))
    assert request < max(width, block) * (target_kv + drafter_kv) + mask, "so test_logged_bytes_are_the_tensors would fail"
