"""Whether triton's CUDA graph replay of a verify holds the masks of full batches at the context limit.

Reads {"context", "batches": [[width, [seq_len, ...]], ...]}, prints the widths of the batches whose masks don't fit.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import torch
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode


def fits(width: int, context: int, lengths: list[int]) -> bool:
    """Replay one batch that fills the captured batch size, on a backend of nothing but its buffers."""
    backend = TritonAttnBackend.__new__(TritonAttnBackend)
    size = len(lengths)
    plain = {"device": "cpu", "num_head": 1, "max_kv_splits": 1, "v_head_dim": 4, "swa_v_head_dim": None}
    backend.__dict__.update(plain, max_context_len=context, skip_prefill=False, sliding_window_size=None)
    backend.num_draft_tokens = width
    backend.req_to_token = torch.zeros(size + 1, context + 4 + width, dtype=torch.int32)
    backend.kv_indptr = torch.zeros(size + 1, dtype=torch.int32)
    backend.qo_indptr = backend.mask_indptr = torch.zeros(size + 1, dtype=torch.int64)
    backend.init_cuda_graph_state(size, size * width)

    seq_lens = torch.tensor(lengths)
    mask = torch.ones(int((width * (seq_lens + width)).sum()), dtype=torch.bool)
    verify = SimpleNamespace(custom_mask=mask)
    try:
        backend.init_forward_metadata_replay_cuda_graph(
            size, torch.arange(size), seq_lens, int(seq_lens.sum()), None, ForwardMode.TARGET_VERIFY, verify, seq_lens
        )
    except RuntimeError as error:
        assert "must match" in str(error), error
        return False
    return True


def main() -> None:
    wanted = json.load(sys.stdin)
    print(json.dumps([width for width, lengths in wanted["batches"] if not fits(width, wanted["context"], lengths)]))


if __name__ == "__main__":
    main()
