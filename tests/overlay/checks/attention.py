"""Run on the CPU engine's Python with SGLang: the reference attention against SGLang's own Triton kernel.

Requests of different lengths in one batch; random trees, chains, non-causal drafts, prefills of unequal lengths.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from cpu_engine.attention import ReferenceAttnBackend
from sglang.srt.layers.attention.triton_ops.extend_attention import extend_attention_fwd
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode

HEADS, KV_HEADS, DIM, SLOTS = 4, 2, 32, 128


class Pool:
    """Keys and values by slot, as SGLang's pools hold them."""

    def __init__(self) -> None:
        self.k, self.v = torch.randn(SLOTS, KV_HEADS, DIM), torch.randn(SLOTS, KV_HEADS, DIM)

    def get_kv_buffer(self, _layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.k, self.v

    def set_kv_buffer(self, _layer: object, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        self.k[slots], self.v[slots] = k, v


def tree_mask(n: int) -> torch.Tensor:
    mask = torch.eye(n, dtype=torch.bool)
    for node in range(1, n):
        mask[node] |= mask[int(torch.randint(0, node, (1,)))]
    return mask


def compare(kind: str, prefixes: list[int], extends: list[int]) -> float:
    """The largest difference between the two for one random batch."""
    pool, slots = Pool(), torch.randperm(SLOTS)
    req_to_token = torch.zeros(len(prefixes) + 3, 64, dtype=torch.int32)
    requests, taken, new = torch.tensor([2, 0, 3, 1, 4][: len(prefixes)]), 0, []
    for request, prefix, extend in zip(requests.tolist(), prefixes, extends, strict=True):
        req_to_token[request, : prefix + extend] = slots[taken : taken + prefix + extend]
        new.append(slots[taken + prefix : taken + prefix + extend])
        taken += prefix + extend
    rows = sum(extends)
    q, k, v = torch.randn(rows, HEADS, DIM), torch.randn(rows, KV_HEADS, DIM), torch.randn(rows, KV_HEADS, DIM)
    masks = None
    if kind == "tree":
        pairs = zip(prefixes, extends, strict=True)
        masks = [torch.cat([torch.ones(e, p, dtype=torch.bool), tree_mask(e)], dim=1).flatten() for p, e in pairs]
    verify = kind in ("tree", "draft", "chain")
    mode = ForwardMode.TARGET_VERIFY if verify else ForwardMode.DECODE if kind == "decode" else ForwardMode.EXTEND
    batch = SimpleNamespace(
        batch_size=len(prefixes),
        forward_mode=mode,
        seq_lens=torch.tensor(prefixes) + (kind == "decode"),
        extend_prefix_lens=torch.tensor(prefixes),
        extend_seq_lens=torch.tensor(extends),
        spec_info=SimpleNamespace(draft_token_num=extends[0], custom_mask=torch.cat(masks) if masks else None),
        req_to_token_pool=SimpleNamespace(req_to_token=req_to_token),
        req_pool_indices=requests,
        token_to_kv_pool=pool,
        out_cache_loc=torch.cat(new),
    )
    layer = SimpleNamespace(
        layer_id=0, tp_q_head_num=HEADS, tp_k_head_num=KV_HEADS, tp_v_head_num=KV_HEADS, qk_head_dim=DIM, v_head_dim=DIM,
        scaling=DIM**-0.5, logit_cap=0.0, is_cross_attention=False, sliding_window_size=-1,
        attn_type=AttentionType.ENCODER_ONLY if kind == "draft" else AttentionType.DECODER,
    )  # fmt: skip
    indices = torch.cat([req_to_token[r, :p] for r, p in zip(requests, prefixes, strict=True)]).long()
    starts = lambda lengths: torch.tensor([0, *lengths]).cumsum(0)  # noqa: E731
    expected = torch.empty_like(q)
    extend_attention_fwd(
        q, k, v, expected, pool.k.clone(), pool.v.clone(), starts(extends).int(), starts(prefixes).int(), indices,
        torch.cat(masks) if masks else None, kind != "draft", starts([m.numel() for m in masks]) if masks else None,
        max(extends), 1.0, 1.0, layer.scaling,
    )  # fmt: skip
    backend = ReferenceAttnBackend(SimpleNamespace(device="cpu"))
    backend.init_forward_metadata(batch)
    got = backend.forward_extend(q.flatten(1), k.flatten(1), v.flatten(1), layer, batch)
    assert torch.equal(pool.k[batch.out_cache_loc], k), "the new keys are not in the pool"
    return float((got.view_as(expected) - expected).abs().max())


if __name__ == "__main__":
    torch.manual_seed(0)
    for kind, prefixes, extends in (
        ("tree", [7, 19, 1], [11, 11, 11]),
        ("tree", [30], [23]),
        ("chain", [7, 19], [8, 8]),
        ("draft", [5, 12, 9], [8, 8, 8]),
        ("prefill", [0, 4, 0, 9], [5, 5, 12, 3]),
        ("decode", [6, 13, 2], [1, 1, 1]),
    ):
        difference = compare(kind, prefixes, extends)
        print(kind, prefixes, difference)
        assert difference < 2e-6, kind
