"""What a DFLASH verify leaves in the batch for the Mamba track buffers, two requests with two buffers each.

Prints {"indices", "mask"}; "stale" stands for what the batch had from its prefill.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import torch
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative import dflash_info

WIDTH = 4


def main() -> None:
    arguments = ServerArgs(model_path="dummy")
    arguments.mamba_scheduler_strategy = "extra_buffer"
    arguments.disable_radix_cache = False
    assert arguments.enable_mamba_extra_buffer()
    set_global_server_args_for_scheduler(arguments)

    dflash_info.alloc_token_slots = lambda _cache, count: torch.arange(1, count + 1)
    requests = [
        SimpleNamespace(mamba_ping_pong_track_buffer=torch.tensor([10, 11]), mamba_next_track_idx=1),
        SimpleNamespace(mamba_ping_pong_track_buffer=torch.tensor([20, 21]), mamba_next_track_idx=0),
    ]
    stale = torch.tensor([-5, -5])
    batch = SimpleNamespace(
        forward_mode=ForwardMode.DECODE,
        tree_cache=None,
        device="cpu",
        reqs=requests,
        batch_size=lambda: len(requests),
        seq_lens=torch.tensor([3, 5]),
        seq_lens_cpu=torch.tensor([3, 5]),
        seq_lens_sum=8,
        req_pool_indices=torch.tensor([0, 1]),
        req_to_token_pool=ReqToTokenPool(size=2, max_context_len=32, device="cpu", enable_memory_saver=False),
        mamba_track_indices=stale,
        mamba_track_mask=stale,
        mamba_track_seqlens=stale,
    )
    tokens = torch.zeros(2 * WIDTH, dtype=torch.int64)
    verify = dflash_info.DFlashVerifyInput(draft_token=tokens, positions=tokens, draft_token_num=WIDTH)
    verify.prepare_for_verify(batch, page_size=1)
    indices, mask = batch.mamba_track_indices, batch.mamba_track_mask
    print(json.dumps({
        "indices": "stale" if indices is stale else indices.tolist(),
        "mask": "stale" if mask is stale else mask,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
