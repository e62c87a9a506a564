"""What a request can ask for, under DDTREE as without speculation: token for token, greedy, each kind in a batch with others."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.engine.checking import check
from tests.engine.harness import EngineFailure, Run, generate, prompts
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


#: One batch with all of these side by side.
PENALTIES = {
    "frequency": {"frequency_penalty": 0.9},
    "presence": {"presence_penalty": 1.5},
    "repetition": {"repetition_penalty": 1.4},
    "all at once": {"frequency_penalty": 0.5, "presence_penalty": 0.6, "repetition_penalty": 1.3, "min_new_tokens": 20},
    "none": {},
}


@pytest.fixture(scope="module")
def penalized(patched_tree: Path) -> tuple[Run, Run]:
    """Each prompt with each kind of penalty: without speculation and with DDTREE."""
    arguments = {"pair": "qwen3-tiny", "max_new_tokens": TOKENS, "sampling": [*PENALTIES.values()] * len(PROMPTS)}
    arguments["prompts"] = [prompt for prompt in PROMPTS for _ in PENALTIES]
    plain = generate(patched_tree, **arguments, engine={"disable_overlap_schedule": True})
    return plain, generate(patched_tree, **arguments, engine=DDTREE)


@pytest.mark.parametrize("kind", PENALTIES)
def test_penalties_count_every_token_on_a_nodes_path(penalized: tuple[Run, Run], kind: str) -> None:
    at = list(PENALTIES).index(kind)
    plain, tree, free = (
        run.outputs[of :: len(PENALTIES)] for run, of in zip((*penalized, penalized[0]), (at, at, 4), strict=True)
    )
    assert tree == plain
    changed = sum(one != other for one, other in zip(plain, free, strict=True))
    assert kind == "none" or changed >= 10, "the penalty hardly changes anything, so this shows little"
    assert penalized[1].verify_steps < 0.9 * sum(map(len, penalized[1].outputs))


def test_penalties_are_applied_in_one_order(pristine_tree: Path, patched_tree: Path) -> None:
    """The pinned tree gives them as a set of classes, whose order is that of their addresses."""
    assert check(pristine_tree, "penalizers") == {"ordered": False}
    assert check(patched_tree, "penalizers") == {"ordered": True}


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

    streamed = generate(
        patched_tree, pair="qwen3-tiny", prompts=PROMPTS, max_new_tokens=TOKENS, sampling=sampling, every=1, engine=DDTREE
    )
    assert streamed.outputs == plain.outputs
    assert [meta["finish_reason"] for meta in streamed.meta] == reasons
    for pieces, text, whole, setting in zip(streamed.pieces, plain.text, free.text, sampling, strict=True):
        assert pieces[-1] == text
        assert all(later.startswith(sooner) for sooner, later in pairwise(pieces[:-1]))
        if not {"logit_bias", "min_new_tokens"} & set(setting):
            assert all(whole.startswith(piece) for piece in pieces)


def test_several_answers_a_prompt(patched_tree: Path) -> None:
    arguments = {"pair": "qwen3-tiny", "prompts": PROMPTS, "max_new_tokens": TOKENS}
    plain = generate(patched_tree, **arguments)
    twice = generate(patched_tree, **arguments, sampling={"n": 2}, engine=DDTREE)
    assert twice.outputs == [output for output in plain.outputs for _ in range(2)]


def test_hidden_states_are_refused(patched_tree: Path) -> None:
    """SGLang keeps one row a step and request, which with several tokens a step is another token's."""
    with pytest.raises(EngineFailure, match="DDTREE speculative decoding does not support return_hidden_states"):
        generate(
            patched_tree,
            pair="qwen3-nano",
            prompts=["a"],
            max_new_tokens=4,
            request={"return_hidden_states": True},
            engine=DDTREE | {"enable_return_hidden_states": True},
        )


def test_logprobs_are_plain_decodings(patched_tree: Path) -> None:
    """Of the committed tokens, of the most probable ones beside them, of tokens asked for by id, and of the prompt."""
    arguments = {"pair": "qwen3-tiny", "prompts": PROMPTS[:8], "max_new_tokens": 24}
    request = {"return_logprob": True, "top_logprobs_num": 3, "token_ids_logprob": [5, 77], "logprob_start_len": 0}
    plain = generate(patched_tree, **arguments, request=request)
    run = generate(patched_tree, **arguments, request=request, engine=DDTREE)
    assert run.outputs == plain.outputs
    for found, want in zip(run.meta, plain.meta, strict=True):
        for kind in ("token_logprobs", "top_logprobs", "token_ids_logprobs"):
            assert len(found[f"output_{kind}"]) == 24
            assert found[f"input_{kind}"][1:] == want[f"input_{kind}"][1:]
            kind = f"output_{kind}"
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
