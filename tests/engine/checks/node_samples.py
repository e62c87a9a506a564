"""The target's tokens at all nodes of a batch: argmax in a greedy row, the row's own distribution in a sampled one.

Reads {"seed"}, prints {"right", "largest_deviation"}: by how many standard deviations a token's count strays the most from
what softmax(logits / temperature) says, over 4,000 nodes of each request. SGLang's own sampler draws.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from ranks import join
from sglang.srt.layers.sampler import Sampler
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.ddtree_utils import sample_ddtree_nodes

NODES, VOCABULARY = 4000, 5
TEMPERATURES = [0.5, 1.0, 3.0]


def main() -> None:
    torch.manual_seed(json.load(sys.stdin)["seed"])
    arguments = ServerArgs(model_path="dummy")
    arguments.sampling_backend = "pytorch"
    set_global_server_args_for_scheduler(arguments)
    with tempfile.TemporaryDirectory() as folder:
        join(0, 1, Path(folder) / "meeting")
    rows = len(TEMPERATURES) + 1
    logits = torch.randn(rows, VOCABULARY)
    info = SamplingBatchInfo(
        temperatures=torch.tensor([*TEMPERATURES, 1.0]).view(-1, 1),
        top_ps=torch.ones(rows),
        top_ks=torch.tensor([1 << 30] * len(TEMPERATURES) + [1], dtype=torch.int32),
        min_ps=torch.zeros(rows),
        is_all_greedy=False,
        need_top_p_sampling=False,
        need_top_k_sampling=True,
        need_min_p_sampling=False,
        vocab_size=VOCABULARY,
    )
    tokens = sample_ddtree_nodes(
        logits.repeat_interleave(NODES, dim=0),
        sampling_info=info,
        positions=torch.zeros(rows * NODES, dtype=torch.int64),
        width=NODES,
        sampler=Sampler(),
    )
    largest = 0.0
    for row, temperature in enumerate(TEMPERATURES):
        probabilities = torch.softmax(logits[row].double() / temperature, dim=0)
        counts = torch.bincount(tokens[row], minlength=VOCABULARY)
        deviation = (counts - NODES * probabilities) / (NODES * probabilities * (1 - probabilities)).sqrt()
        largest = max(largest, float(deviation.abs().max()))
    greedy = bool((tokens[-1] == int(logits[-1].argmax())).all())
    print(json.dumps({"right": greedy and largest < 5, "largest_deviation": largest}))


if __name__ == "__main__":
    main()
