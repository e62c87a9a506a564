"""What a request can ask for, under DDTREE as without speculation: token for token, greedy, each kind in a batch with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.harness import Run, generate, prompts
from tests.engine.test_baseline import TEXTS

DDTREE = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 15}
PROMPTS = prompts("qwen3-tiny")[:20]
TOKENS = 40


def both(tree: Path, sampling: list[dict] | dict, **engine: object) -> tuple[Run, Run]:
    """The same requests without speculation and with DDTREE.

    Plain decoding is without its overlap scheduler, which feeds a penalizer the last output token but one.
    """
    arguments = {"pair": "qwen3-tiny", "prompts": PROMPTS, "max_new_tokens": TOKENS, "sampling": sampling}
    plain = engine | {"disable_overlap_schedule": True}
    return generate(tree, **arguments, engine=plain), generate(tree, **arguments, engine=engine | DDTREE)


def cycle(kinds: list[dict]) -> list[dict]:
    """One kind after the other over all prompts."""
    return [kinds[at % len(kinds)] for at in range(len(PROMPTS))]


@pytest.mark.parametrize(
    "penalty",
    [{"frequency_penalty": 0.9}, {"presence_penalty": 1.5}, {"repetition_penalty": 1.4}],
    ids=["frequency", "presence", "repetition"],
)
def test_penalties_count_every_token_on_a_nodes_path(patched_tree: Path, penalty: dict) -> None:
    plain, run = both(patched_tree, cycle([penalty, {}]))
    free = generate(patched_tree, pair="qwen3-tiny", prompts=PROMPTS, max_new_tokens=TOKENS)
    changed = sum(one != other for one, other in zip(plain.outputs, free.outputs, strict=True))
    assert changed >= 5, "the penalty hardly changes anything, so this shows little"
    assert run.outputs == plain.outputs
    assert run.verify_steps < sum(map(len, run.outputs))


def test_logit_bias_stops_and_lengths(patched_tree: Path) -> None:
    """A bias, stop ids, stop strings, minimum and maximum lengths: tokens, text and the reason to stop."""
    free = generate(patched_tree, pair="qwen3-tiny", prompts=PROMPTS, max_new_tokens=TOKENS)
    kinds = [
        lambda output, text: {"logit_bias": {str(output[3]): -50.0}},
        lambda output, text: {"stop_token_ids": [output[7]]},
        lambda output, text: {"stop": [text[len(text) // 2 :][:6]]},
        lambda output, text: {"stop_token_ids": [output[2]], "min_new_tokens": 12},
        lambda output, text: {"max_new_tokens": 1 + len(text) % 7},
    ]
    sampling = [kinds[at % len(kinds)](free.outputs[at], free.text[at]) for at in range(len(PROMPTS))]
    plain, run = both(patched_tree, sampling)
    assert run.outputs == plain.outputs
    assert run.text == plain.text
    reasons = [meta["finish_reason"] for meta in run.meta]
    assert reasons == [meta["finish_reason"] for meta in plain.meta]
    assert {reason["type"] for reason in reasons} == {"stop", "length"}


def test_logprobs_are_plain_decodings(patched_tree: Path) -> None:
    """Of the committed tokens, of the most probable ones beside them, and of tokens asked for by id."""
    arguments = {"pair": "qwen3-tiny", "prompts": PROMPTS[:8], "max_new_tokens": 24}
    request = {"return_logprob": True, "top_logprobs_num": 3, "token_ids_logprob": [5, 77]}
    plain = generate(patched_tree, **arguments, request=request)
    run = generate(patched_tree, **arguments, request=request, engine=DDTREE)
    assert run.outputs == plain.outputs
    for found, want in zip(run.meta, plain.meta, strict=True):
        for kind in ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs"):
            assert len(found[kind]) == 24
            assert _ids(found[kind]) == _ids(want[kind])
            assert _values(found[kind]) == pytest.approx(_values(want[kind]), abs=1e-3)


def _flat(entries: list) -> list[tuple[float, int]]:
    """(logprob, token id) of entries that are such pairs, or lists of them."""
    return [pair for entry in entries for pair in ([entry] if isinstance(entry[1], int) else entry)]


def _ids(entries: list) -> list[int]:
    return [pair[1] for pair in _flat(entries)]


def _values(entries: list) -> list[float]:
    return [pair[0] for pair in _flat(entries)]


def test_two_tensor_parallel_ranks_agree_with_one(patched_tree: Path) -> None:
    """Top-k over vocabulary shards with global ids, and one rank's decision for both."""
    arguments = {"pair": "qwen3-nano", "prompts": TEXTS, "max_new_tokens": 24}
    one = generate(patched_tree, **arguments, engine=DDTREE)
    two = generate(patched_tree, **arguments, engine=DDTREE | {"tp_size": 2}, env={"SGLANG_CPU_OMP_THREADS_BIND": "0|1"})
    assert two.outputs == one.outputs == generate(patched_tree, **arguments).outputs
    assert two.verify_steps == one.verify_steps
