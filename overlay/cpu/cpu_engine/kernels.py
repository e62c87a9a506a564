"""Plain torch for kernels that every speculative step launches and that are slow in Triton's interpreter."""

from __future__ import annotations

import torch


def assign_req_to_token_pool(
    req_pool_indices: torch.Tensor,  # [n] row of each request
    req_to_token: torch.Tensor,  # [rows, max context] out
    start_offset: torch.Tensor,  # [n] first position that a request writes
    end_offset: torch.Tensor,  # [n] position after its last
    out_cache_loc: torch.Tensor,  # [sum of lengths] slots, request after request
    *_sizes: int,  # the row's length and the padded batch size, which only the kernel needs
) -> None:
    """Write each request's new cache slots into its row, as `spec_utils.assign_req_to_token_pool` does."""
    lengths = (end_offset - start_offset).long()
    n = lengths.shape[0]
    before = lengths.cumsum(dim=0) - lengths
    total = int(lengths.sum())
    rows = req_pool_indices[:n].repeat_interleave(lengths, output_size=total)
    columns = torch.arange(total) + (start_offset - before).repeat_interleave(lengths, output_size=total)
    req_to_token[rows, columns] = out_cache_loc[:total].to(req_to_token.dtype)
