"""Attention in plain torch: prefill, decode, verification under any mask (so also of trees), non-causal drafts.

It stands where SGLang's TritonAttnBackend would, for target and drafter, with the same contract. The number of rows that
a request verifies is read from the batch's spec_info and never from the server's arguments. What it doesn't do
(sliding windows, cross attention, sinks) raises NotImplementedError.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType


@dataclass(frozen=True, slots=True)
class Block:
    """Requests next to each other in a batch that extend their sequences by the same number of tokens.

    Shapes: n requests, q new tokens each, p cached tokens in the longest of them.
    """

    first_row: int
    n: int
    q: int
    slots: torch.Tensor  # [n * p] pool slots of the cached tokens, short requests padded with slot 0
    causal: torch.Tensor  # [n, 1, q, p + q] bool: what each new token sees in a causal layer
    full: torch.Tensor  # [n, 1, 1, p + q] bool: the same in a layer that is not causal

    @property
    def rows(self) -> slice:
        return slice(self.first_row, self.first_row + self.n * self.q)


class ReferenceAttnBackend(AttentionBackend):
    """The attention backend of the CPU engine."""

    def __init__(self, model_runner) -> None:
        super().__init__()
        self.device = model_runner.device
        self.forward_metadata: list[Block] = []

    def init_forward_metadata(self, forward_batch) -> None:
        n = int(forward_batch.batch_size)
        mode = forward_batch.forward_mode
        mask = None
        if mode.is_idle():
            self.forward_metadata = []
            return
        if mode.is_decode():
            prefix_lens, extend_lens = forward_batch.seq_lens[:n] - 1, [1] * n
        elif mode.is_target_verify():
            prefix_lens, extend_lens = forward_batch.seq_lens[:n], [int(forward_batch.spec_info.draft_token_num)] * n
            mask = forward_batch.spec_info.custom_mask
        else:
            prefix_lens, extend_lens = forward_batch.extend_prefix_lens[:n], forward_batch.extend_seq_lens[:n].tolist()
        self.forward_metadata = _blocks(
            forward_batch.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices[:n],
            prefix_lens.long(),
            extend_lens,
            mask,
        )

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **extra) -> torch.Tensor:
        _refuse_what_is_missing(layer, extra)
        k = k.view(-1, layer.tp_k_head_num, layer.qk_head_dim)
        v = v.view(-1, layer.tp_v_head_num, layer.v_head_dim)
        q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        pool = forward_batch.token_to_kv_pool
        if save_kv_cache:
            pool.set_kv_buffer(layer, forward_batch.out_cache_loc, k, v)
        k_cache, v_cache = pool.get_kv_buffer(layer.layer_id)
        causal = layer.attn_type != AttentionType.ENCODER_ONLY
        outputs = [
            _attend(
                q[block.rows].unflatten(0, (block.n, block.q)),
                _sequences(k_cache, k, block),
                _sequences(v_cache, v, block),
                block.causal if causal else block.full,
                layer,
            )
            for block in self.forward_metadata
        ]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        if output.shape[0] == q.shape[0]:
            return output
        # The batch is padded: rows beyond its requests mean nothing, but they must be there.
        return F.pad(output, (0, 0, 0, q.shape[0] - output.shape[0]))

    # A decode step extends each sequence by its one new token.
    forward_decode = forward_extend

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def support_triton(self) -> bool:
        return True


def _blocks(
    req_to_token: torch.Tensor,  # [request slots, max context]
    requests: torch.Tensor,  # [n]
    prefix_lens: torch.Tensor,  # [n]
    extend_lens: list[int],
    mask: torch.Tensor | None,  # all requests' [q, prefix + q] masks, flattened and joined
) -> list[Block]:
    """The batch cut where the number of new tokens changes (verification and decoding: one block)."""
    blocks, first, row = [], 0, 0
    while first < len(extend_lens):
        q, last = extend_lens[first], first + 1
        while last < len(extend_lens) and extend_lens[last] == q:
            last += 1
        prefixes, n = prefix_lens[first:last], last - first
        p = int(prefixes.max())
        columns = torch.arange(p)
        cached = columns < prefixes[:, None]  # [n, p]
        slots = torch.where(cached, req_to_token[requests[first:last], :p], 0)
        if mask is None:
            new = torch.ones(q, q, dtype=torch.bool).tril().expand(n, q, q)
            causal = torch.cat([cached[:, None].expand(n, q, p), new], dim=2)
        else:
            causal = _unpack(mask, prefixes, cached, q)
        full = torch.cat([cached, cached.new_ones(n, q)], dim=1)
        blocks.append(Block(row, n, q, slots.flatten(), causal[:, None], full[:, None, None]))
        first, row = last, row + n * q
    return blocks


def _unpack(mask: torch.Tensor, prefixes: torch.Tensor, cached: torch.Tensor, q: int) -> torch.Tensor:
    """The joined masks as one [n, q, p + q] tensor with every request's new tokens in the last q columns."""
    n, p = cached.shape
    widths = prefixes + q
    starts = (q * widths).cumsum(0) - q * widths
    columns = torch.cat([torch.arange(p).expand(n, p).clamp(max=widths[:, None] - 1), prefixes[:, None] + torch.arange(q)], dim=1)
    index = starts[:, None, None] + torch.arange(q)[:, None] * widths[:, None, None] + columns[:, None]
    exists = torch.cat([cached, cached.new_ones(n, q)], dim=1)
    return mask[index].bool() & exists[:, None]


def _sequences(cache: torch.Tensor, new: torch.Tensor, block: Block) -> torch.Tensor:
    """[n, p + q, heads, head_dim]: cached keys or values of each request, then its new ones."""
    cached = cache.index_select(0, block.slots).unflatten(0, (block.n, -1)) if block.slots.numel() else None
    extension = new[block.rows].unflatten(0, (block.n, block.q))
    return extension if cached is None else torch.cat([cached, extension], dim=1)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, layer) -> torch.Tensor:
    """[n * q, heads * head_dim]; q is [n, q, heads, head_dim], k and v [n, keys, kv heads, head_dim]."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2).to(q.dtype), v.transpose(1, 2).to(q.dtype)
    if layer.logit_cap:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q.float() @ k.transpose(2, 3).float() * layer.scaling
        scores = layer.logit_cap * torch.tanh(scores / layer.logit_cap)
        output = (scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ v.float()).to(q.dtype)
    else:
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=layer.scaling, enable_gqa=True)
    return output.transpose(1, 2).flatten(0, 1).flatten(1)


def _refuse_what_is_missing(layer, extra: dict) -> None:
    missing = [name for name, value in extra.items() if value is not None]
    if layer.is_cross_attention:
        missing.append("cross attention")
    if (layer.sliding_window_size or -1) > -1:
        missing.append("sliding_window_size")
    if missing:
        raise NotImplementedError(f"not written in the CPU engine's reference attention: {', '.join(missing)}")
