"""Structured output under DDTREE: token for token what plain decoding gives with the same grammar, greedy.

Three deliberate breakages, each caught by a test of its own here:

* no rollback after the walk         `test_caught_no_rollback`
* the mask applied at the root only  `test_caught_a_mask_at_the_root_only`
* a committed token accepted twice   `test_caught_a_token_accepted_twice`
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from tests.engine.checking import SEEDED, SEEDED_ENV
from tests.engine.harness import Run, generate
from tests.engine.test_baseline import TEXTS

GRAMMAR = "sglang/srt/speculative/ddtree_grammar.py"
INFO = "sglang/srt/speculative/dflash_info.py"

#: Without its overlap scheduler, which feeds a penalizer the last output token but one.
PLAIN = {"grammar_backend": "xgrammar", "disable_overlap_schedule": True}
DDTREE = {"grammar_backend": "xgrammar", "speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 15}
TOKENS = 40

#: What the pair was trained on, so that the drafter's paths reach the grammar's end and beyond it.
ITEM = {
    "json_schema": json.dumps(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "value": {"type": "integer"}, "ok": {"type": "boolean"}},
            "required": ["name", "value", "ok"],
            "additionalProperties": False,
        }
    )
}
#: Keys that no drafter of ours knows: nearly every node violates it.
STRANGE = {
    "json_schema": json.dumps(
        {
            "type": "object",
            "properties": {"zq": {"enum": ["xx7", "yy8"]}, "kw": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
            "required": ["zq", "kw"],
            "additionalProperties": False,
        }
    )
}
CHOICE = {"regex": r"(the quick brown (fox|dog)|def f[0-9]\(x\)|item [0-9]{1,3}), (true|false)( and (true|false)){1,3}"}
EBNF = {"ebnf": 'root ::= "return x" (op term){1,5} "\\n"\nop ::= " + " | " - "\nterm ::= [0-9] | "(" [a-c]+ ")"'}
#: Free text, but a number after each fox and one of two words after each item.
TAG = {
    "structural_tag": json.dumps(
        {
            "structures": [
                {"begin": "fox", "schema": {"type": "integer"}, "end": " hops"},
                {"begin": "item", "schema": {"enum": ["xx7", "yy8"]}, "end": ";"},
            ],
            "triggers": ["fox", "item"],
        }
    )
}
#: One batch with all of these side by side.
KINDS = {
    "schema": ITEM,
    "strange schema": STRANGE,
    "regex": CHOICE,
    "ebnf": EBNF,
    "structural tag": TAG,
    "no grammar": {},
    "past the end": ITEM | {"ignore_eos": True},
    # One penalty alone: SGLang keeps penalizers in a set, so the order of two that do not commute differs by process.
    "penalized": CHOICE | {"frequency_penalty": 0.8},
    "biased": ITEM | {"logit_bias": {"20": 3.0, "25": -5.0}},
    "stop string": ITEM | {"stop": ['", "value']},
}
CASES = [{"ignore_eos": False} | kind for _ in TEXTS for kind in KINDS.values()]


def run(tree: Path, engine: dict, kinds: list[dict], **more: object) -> Run:
    """Each text with each of its kinds: `kinds` holds as many for each text."""
    texts = [text for text in TEXTS for _ in range(len(kinds) // len(TEXTS))]
    return generate(tree, pair="qwen3-nano", prompts=texts, max_new_tokens=TOKENS, sampling=kinds, engine=engine, **more)


@pytest.fixture(scope="module")
def plain(patched_tree: Path) -> Run:
    return run(patched_tree, PLAIN, CASES, request={"return_logprob": True, "top_logprobs_num": 2})


@pytest.fixture(scope="module")
def tree(patched_tree: Path) -> Run:
    return run(patched_tree, DDTREE, CASES, request={"return_logprob": True, "top_logprobs_num": 2})


def of_kind(values: list, kind: str) -> list:
    """The 20 of all values that belong to one kind."""
    return values[list(KINDS).index(kind) :: len(KINDS)]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_equal_plain_decoding(plain: Run, tree: Run, kind: str) -> None:
    assert of_kind(tree.outputs, kind) == of_kind(plain.outputs, kind)
    assert of_kind(tree.text, kind) == of_kind(plain.text, kind)
    found, want = ([meta["finish_reason"] for meta in of_kind(one.meta, kind)] for one in (tree, plain))
    assert found == want


def test_outputs_are_what_their_grammar_says(tree: Run) -> None:
    """And most paths end with the grammar's own end, in fewer steps than tokens."""
    for text in of_kind(tree.text, "schema"):
        assert set(json.loads(text)) == {"name", "value", "ok"}
    assert all(re.fullmatch(CHOICE["regex"], text) for text in of_kind(tree.text, "regex"))
    assert all(text.startswith("return x") and text.endswith("\n") for text in of_kind(tree.text, "ebnf"))
    steps = {kind: sum(meta["spec_verify_ct"] for meta in of_kind(tree.meta, kind)) for kind in KINDS}
    tokens = {kind: sum(map(len, of_kind(tree.outputs, kind))) for kind in KINDS}
    assert steps["schema"] < 0.5 * tokens["schema"], "paths of several nodes reach the grammar's end"
    assert steps["strange schema"] > 0.8 * tokens["strange schema"], "nearly every node violates this one"
    after = [rest for text in of_kind(tree.text, "structural tag") for rest in text.split("fox")[1:]]
    assert len(after) >= 10 and all(re.match(r"-?[0-9]+( hops|$)", rest) for rest in after)
    free = of_kind(tree.outputs, "no grammar")
    assert sum(a != b for a, b in zip(free, of_kind(tree.outputs, "schema"), strict=True)) >= 10


def test_logprobs_are_plain_decodings(plain: Run, tree: Run) -> None:
    for found, want in zip(tree.meta, plain.meta, strict=True):
        pairs = list(zip(found["output_token_logprobs"], want["output_token_logprobs"], strict=True))
        assert all(a[1] == b[1] and math.isclose(a[0], b[0], abs_tol=1e-3) for a, b in pairs)


def test_a_seeded_sample_is_the_plain_samplers(seeded_tree) -> None:
    """Temperature and a choice: seed by seed the tokens of plain decoding. See test_ddtree's test of this name."""
    deterministic = seeded_tree()
    kinds = [CHOICE | {"ignore_eos": False, "temperature": 1.5, "sampling_seed": seed} for seed in range(len(TEXTS))]
    want = run(deterministic, PLAIN | SEEDED, kinds, env=SEEDED_ENV)
    found = run(deterministic, DDTREE | SEEDED, kinds, env=SEEDED_ENV)
    assert found.outputs == want.outputs
    assert all(re.fullmatch(CHOICE["regex"], text) for text in found.text)
    assert len(set(found.text)) >= 10


#: One request a prompt, of four kinds of grammar in turn, by their place in `CASES`.
MIXED = [at * len(KINDS) + at % 4 for at in range(len(TEXTS))]


def test_two_tensor_parallel_ranks_agree_with_one(patched_tree: Path, plain: Run) -> None:
    mixed = [CASES[at] for at in MIXED]
    two = run(patched_tree, DDTREE | {"tp_size": 2}, mixed, env={"SGLANG_CPU_OMP_THREADS_BIND": "0|1"})
    assert two.outputs == [plain.outputs[at] for at in MIXED]


def test_streamed_and_aborted_in_the_middle(patched_tree: Path, plain: Run) -> None:
    found = run(patched_tree, DDTREE, [CASES[at] for at in MIXED], every=1, abort_after=2)
    aborted = [meta["finish_reason"]["type"] == "abort" for meta in found.meta]
    assert 3 <= sum(aborted) <= 7
    for gone, output, at in zip(aborted, found.outputs, MIXED, strict=True):
        assert output == plain.outputs[at][: len(output)]
        assert gone or output == plain.outputs[at]


def test_llguidance_masks_as_it_does_in_plain_decoding(patched_tree: Path, plain: Run) -> None:
    """Its grammars hand out one buffer of masks again and again, and end by themselves.

    In plain decoding a request without grammar then meets the mask that its row had last, so here it is compared with what
    xgrammar gives.
    """
    kinds = [{"ignore_eos": False} | kind for _ in TEXTS for kind in (ITEM, STRANGE, CHOICE, {})]
    want, found = (run(patched_tree, engine | {"grammar_backend": "llguidance"}, kinds) for engine in (PLAIN, DDTREE))
    for at in range(3):
        assert found.outputs[at::4] == want.outputs[at::4]
    assert found.outputs[3::4] == of_kind(plain.outputs, "no grammar")
    assert all(set(json.loads(text)) == {"name", "value", "ok"} for text in found.text[::4])
    assert all(re.fullmatch(CHOICE["regex"], text) for text in found.text[2::4])
    assert sum(meta["spec_verify_ct"] for meta in found.meta[::4]) < 0.5 * sum(map(len, found.outputs[::4]))


def wrong(broken: Path, plain: Run) -> int:
    """How many of the 20 outputs under the schema differ from plain decoding."""
    found = run(broken, DDTREE, [ITEM | {"ignore_eos": False}] * len(TEXTS))
    return sum(a != b for a, b in zip(found.outputs, of_kind(plain.outputs, "schema"), strict=True))


def test_caught_no_rollback(mutated_tree, plain: Run) -> None:
    broken = mutated_tree(GRAMMAR, "        grammar.rollback(depth_now)\n", "        pass\n")
    assert wrong(broken, plain) >= 10


def test_caught_a_mask_at_the_root_only(mutated_tree, plain: Run) -> None:
    broken = mutated_tree(GRAMMAR, "    if depth_now > 0:\n", "    rows[1:].fill_(-1)\n    if depth_now > 0:\n")
    assert wrong(broken, plain) >= 5


def test_caught_a_token_accepted_twice(mutated_tree, plain: Run) -> None:
    line = "                    req.grammar.accept_token(token_id)\n"
    assert wrong(mutated_tree(INFO, line, line * 2), plain) >= 10
