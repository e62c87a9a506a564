"""DDTREE's decode step of CUDA graphs on a CPU: each graph is replaced by the operations that it would have captured.

Runs in the engine's scheduler process. What the graphs themselves change (memory pools, streams) is not seen here; what
they compute, in which order, and what the host does meanwhile, is.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative import ddtree_step
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

BATCH_SIZES = [1, 2, 4, 8]


class EagerGraphs:
    """What DDTreeStep uses of a CudaGraphRunner."""

    seq_len_fill_value = 1
    capture_hidden_mode = CaptureHiddenMode.FULL
    capture_bs = BATCH_SIZES

    def __init__(self, runner, tokens: int, drafter: bool) -> None:
        self.runner, self.tokens, self.drafter = runner, tokens, drafter
        rows, hidden = BATCH_SIZES[-1], runner.model_config.hidden_size
        ids = torch.zeros(rows * tokens, dtype=torch.int64)
        self.buffers = SimpleNamespace(
            input_ids=ids.clone(),
            positions=ids.clone(),
            out_cache_loc=ids.clone(),
            seq_lens=torch.ones(rows, dtype=torch.int32),
            req_pool_indices=torch.zeros(rows, dtype=torch.int64),
            input_embeds=torch.zeros(rows * tokens, hidden),
        )
        self.attn_backend = SimpleNamespace(
            cuda_graph_custom_mask=torch.zeros(rows * tokens * (runner.model_config.context_len + 4 * tokens), dtype=torch.bool),
            init_forward_metadata_replay_cuda_graph=lambda *_args, **_kwargs: None,
        )
        self.output_buffers: dict[int, LogitsProcessorOutput] = {}
        self.graphs = {size: SimpleNamespace(replay=lambda size=size: self._forward(size)) for size in BATCH_SIZES}
        for size in BATCH_SIZES:
            self._forward(size)

    def _make_graph_key(self, size: int) -> int:
        return size

    def _forward(self, size: int) -> None:
        n, buffers, runner = size * self.tokens, self.buffers, self.runner
        lens = buffers.seq_lens[:size].clone()
        total = int(lens.sum())
        mode = CaptureHiddenMode.NULL if self.drafter else CaptureHiddenMode.FULL
        mask = None if self.drafter else self.attn_backend.cuda_graph_custom_mask[: self.tokens * (total + n)]
        batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=size,
            input_ids=buffers.input_ids[:n],
            req_pool_indices=buffers.req_pool_indices[:size],
            seq_lens=lens,
            seq_lens_cpu=lens,
            seq_lens_sum=total,
            out_cache_loc=buffers.out_cache_loc[:n],
            positions=buffers.positions[:n],
            req_to_token_pool=runner.req_to_token_pool,
            token_to_kv_pool=runner.token_to_kv_pool,
            attn_backend=runner.attn_backend,
            input_embeds=buffers.input_embeds[:n] if self.drafter else None,
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=DFlashVerifyInput(
                draft_token=None,
                positions=None,
                draft_token_num=self.tokens,
                custom_mask=mask,
                capture_hidden_mode=mode,
            ),
            capture_hidden_mode=mode,
        )
        output = runner.forward(batch).logits_output
        if size not in self.output_buffers:
            self.output_buffers[size] = LogitsProcessorOutput(
                next_token_logits=None if self.drafter else torch.zeros_like(output.next_token_logits),
                hidden_states=torch.zeros_like(output.hidden_states),
            )
        kept = self.output_buffers[size]
        kept.hidden_states.copy_(output.hidden_states)
        if not self.drafter:
            kept.next_token_logits.copy_(output.next_token_logits)


class _Event:
    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class EagerStep(ddtree_step.DDTreeStep):
    """Counts its steps, and how many of them found their draft made ahead."""

    steps = ahead_steps = 0

    def _capture(self, run):
        return SimpleNamespace(replay=run)

    def _is_ahead(self, batch) -> bool:
        is_ahead = super()._is_ahead(batch)
        self.steps += 1
        self.ahead_steps += is_ahead
        print(f"eager step {self.steps}, ahead {self.ahead_steps}, batch {batch.batch_size()}", flush=True)
        return is_ahead


def create(worker) -> EagerStep:
    torch.cuda.Event = _Event
    with torch.no_grad():
        worker.model_runner.graph_runner = EagerGraphs(worker.model_runner, worker.ddtree_budget + 1, drafter=False)
        worker.draft_model_runner.graph_runner = EagerGraphs(worker.draft_model_runner, worker.block_size, drafter=True)
    step = EagerStep(worker)
    # From here on only the step replays: a forward pass of its own must not.
    step.target_graphs.runner.graph_runner = step.draft_graphs.runner.graph_runner = None
    return step
