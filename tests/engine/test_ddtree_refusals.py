"""What DDTREE can't do is refused at start, in one sentence that names the option to change."""

from __future__ import annotations

from pathlib import Path

from tests.engine.checking import assert_refused

#: A setting, and what its refusal must name; None for one that starts.
SETTINGS: list[tuple[dict, str | None]] = [
    ({}, None),
    ({"speculative_ddtree_budget": 1}, None),
    ({"attention_backend": "flashinfer"}, None),
    ({"speculative_ddtree_budget": 0}, "--speculative-ddtree-budget"),
    ({"speculative_ddtree_budget": 2.5}, "--speculative-ddtree-budget"),
    ({"speculative_num_draft_tokens": 16}, "--speculative-num-draft-tokens"),
    ({"speculative_dflash_block_size": 1}, "--speculative-dflash-block-size"),
    ({"page_size": 16}, None),
    ({"attention_backend": "torch_native"}, "--attention-backend"),
    ({"decode_attention_backend": "fa3"}, "--attention-backend"),
    ({"linear_attn_prefill_backend": "flashinfer"}, "--linear-attn-backend"),
    ({"disaggregation_mode": "decode"}, "--disaggregation-mode"),
    ({"enable_two_batch_overlap": True}, "--enable-two-batch-overlap"),
    ({"grammar_backend": "outlines"}, "--grammar-backend"),
    ({"speculative_draft_model_path": None}, "--speculative-draft-model-path"),
    ({"enable_dp_attention": True, "tp_size": 2, "dp_size": 2}, "--enable-dp-attention"),
    ({"pp_size": 2}, "--pp-size"),
]


def test_settings_that_do_not_work(patched_tree: Path) -> None:
    assert_refused(patched_tree, SETTINGS)
