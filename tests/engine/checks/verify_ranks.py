"""Whether two ranks commit the same tokens of a tree although their targets' equal logits fall differently.

Reads {"seed"}, prints {"same"}. Real gloo ranks walk the same trees; rank 1 sees a little noise on its logits.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import torch
from ranks import on_every_rank
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.ddtree_utils import build_ddtree
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

REQUESTS, BUDGET, VOCABULARY, DEPTH = 6, 7, 8, 4
WIDTH = BUDGET + 1


class Request(SimpleNamespace):
    """What `verify` asks of a request that never ends."""

    def check_finished(self) -> None: ...

    def finished(self) -> bool:
        return False

    def update_spec_acceptance_histogram(self, _accepted: int) -> None: ...


def work(rank: int, seed: int) -> list[list]:
    random = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(5):
        logprobs, ids = torch.sort(torch.rand(REQUESTS, DEPTH, VOCABULARY, generator=random), dim=2, descending=True)
        roots = torch.zeros(REQUESTS, dtype=torch.int64)
        tree = build_ddtree(root_tokens=roots, topk_logprobs=logprobs.log_softmax(2), topk_ids=ids, budget=BUDGET)
        # Two or more tokens share every maximum.
        logits = torch.randint(0, 2, (REQUESTS * WIDTH, VOCABULARY), generator=random).float()
        logits += rank * 1e-6 * torch.rand(logits.shape)
        allocator = TokenToKVPoolAllocator(200, torch.float32, "cpu", None, False)
        common = {"grammar": None, "require_reasoning": False, "origin_input_ids": [1]}
        counts = {"kv_committed_len": 1, "kv_allocated_len": 1, "spec_verify_ct": 0, "spec_accepted_drafts": 0}
        requests = [Request(output_ids=[], spec_ddtree_stats=None, **common, **counts) for _ in range(REQUESTS)]
        batch = SimpleNamespace(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=lambda: REQUESTS,
            sampling_info=None,
            return_logprob=False,
            reqs=requests,
            device="cpu",
            seq_lens=torch.ones(REQUESTS, dtype=torch.int64),
            seq_lens_cpu=torch.ones(REQUESTS, dtype=torch.int64),
            seq_lens_sum=REQUESTS,
            out_cache_loc=allocator.alloc(REQUESTS * WIDTH),
            token_to_kv_pool_allocator=allocator,
            req_pool_indices=torch.arange(REQUESTS),
            req_to_token_pool=ReqToTokenPool(REQUESTS, 40, "cpu", False),
        )
        verify = DFlashVerifyInput(tree.tokens.view(-1), tree.depths.view(-1), WIDTH, topk=BUDGET, tree=tree)
        output = SimpleNamespace(next_token_logits=logits, hidden_states=torch.zeros(REQUESTS * WIDTH, 1))
        last, lengths, _, _ = verify.verify(batch=batch, logits_output=output, page_size=1)
        found.append([last.tolist(), lengths.tolist(), [request.output_ids for request in requests]])
    return found


def main() -> None:
    one, other = on_every_rank(2, work, json.load(sys.stdin)["seed"])
    print(json.dumps({"same": one == other}))


if __name__ == "__main__":
    main()
