"""The CPU engine is SGLang: on the pinned tree its tokens are those of transformers, and of its own real kernels.

Without this, a test that compares DDTREE with plain decoding could compare two engines that are wrong in the same way.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.harness import generate, prompts, reference

#: Texts of the kinds that the nano pairs were trained on, long, short and foreign ones.
TEXTS = [
    '{"name": "item 3", "value":',
    "the quick brown",
    "def f1(x):",
    "hello world",
    '{"name": "item 12", "value": 6, "ok": true}',
    "def f7(x):\n    return",
    "the quick brown fox jumps over the lazy dog 17",
    "a",
    "12345",
    "    return x +",
    '{"ok": false, "value":',
    "lazy dog",
    "jumps over the",
    "fox fox fox fox",
    "zzz",
    "x + 1",
    "item item",
    "true false true",
    '"name"',
    "The End. " * 12,
]
#: Of SGLang 0.5.11's own DFLASH, first 16 prompts of qwen3-tiny, 128 tokens each.
DFLASH_STEPS = 618


@pytest.mark.parametrize(
    ("pair", "texts", "tokens"), [("qwen3-nano", TEXTS, 48), ("qwen35-nano", TEXTS[:4], 12)], ids=["dense", "hybrid"]
)
def test_plain_greedy_equals_transformers(pristine_tree: Path, pair: str, texts: list[str], tokens: int) -> None:
    run = generate(pristine_tree, pair=pair, prompts=texts, max_new_tokens=tokens)
    assert run.outputs == reference(pair=pair, prompts=texts, max_new_tokens=tokens)


def test_dflash_equals_plain_in_as_many_steps_as_measured(pristine_tree: Path) -> None:
    arguments = {"pair": "qwen3-tiny", "prompts": prompts("qwen3-tiny")[:16], "max_new_tokens": 128}
    plain = generate(pristine_tree, **arguments)
    dflash = generate(pristine_tree, **arguments, engine={"speculative_algorithm": "DFLASH"})
    assert dflash.outputs == plain.outputs
    assert all(len(output) == 128 for output in dflash.outputs)
    assert dflash.verify_steps == pytest.approx(DFLASH_STEPS, rel=0.01)


def test_reference_attention_equals_the_real_kernels(pristine_tree: Path) -> None:
    arguments = {
        "pair": "qwen3-nano",
        "prompts": TEXTS[:4],
        "max_new_tokens": 24,
        "engine": {"speculative_algorithm": "DFLASH"},
    }
    plain_torch = generate(pristine_tree, **arguments)
    kernels = generate(pristine_tree, **arguments, env={"SGLANG_CPU_ATTN": "triton"})
    assert plain_torch.outputs == kernels.outputs
    assert plain_torch.verify_steps == kernels.verify_steps
