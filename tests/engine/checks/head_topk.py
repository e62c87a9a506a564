"""The draft head's top-k over a vocabulary that is cut among ranks, against one sort of the whole vocabulary.

Reads {"ranks", "cases": [{"vocabulary", "added", "padding", "k", "ties"}, ...]}, prints for each case {"same": all ranks
have the same bits, "right": they are those of the sorted vocabulary, "found": the first difference}. Weights are small
multiples of powers of two, so logits are exact in any order of summation; with `ties` most of them are equal.
"""

from __future__ import annotations

import json
import sys

import torch
from ranks import on_every_rank
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from sglang.srt.speculative.ddtree_utils import topk_logprobs_from_vocab_parallel_head

ROWS, HIDDEN = 5, 16


def whole(case: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states and all rows of the head, which is padded with rows that would win."""
    random = torch.Generator().manual_seed(case["vocabulary"])
    high = 2 if case["ties"] else 9
    hidden = torch.randint(-3, 4, (ROWS, HIDDEN), generator=random) / 16
    weight = torch.randint(-high, high + 1, (case["vocabulary"] + case["added"], HIDDEN), generator=random).float()
    if not case["ties"]:
        # Another multiple of 1/65536 for each token, and all of them below 1/16: no two logits of a row are equal.
        hidden[:, 0] = 1.0
        weight[:, 0] = torch.randperm(weight.shape[0], generator=random) / 65536
    return hidden, weight


def work(rank: int, cases: list[dict]) -> list[tuple[list, list]]:
    found = []
    for case in cases:
        hidden, weight = whole(case)
        head = ParallelLMHead(
            case["vocabulary"] + case["added"],
            HIDDEN,
            params_dtype=torch.float32,
            org_num_embeddings=case["vocabulary"],
            padding_size=case["padding"],
        )
        shard = head.shard_indices
        with torch.no_grad():
            head.weight.fill_(99.0)
            start, end = shard.org_vocab_start_index, shard.org_vocab_end_index
            head.weight[: end - start] = weight[start:end]
            first = shard.num_org_elements_padded
            start, end = shard.added_vocab_start_index, shard.added_vocab_end_index
            head.weight[first : first + end - start] = weight[start:end]
            values, ids = topk_logprobs_from_vocab_parallel_head(hidden_states=hidden, lm_head=head, k=case["k"])
        found.append((values.tolist(), ids.tolist()))
    return found


def difference(case: dict, values: torch.Tensor, ids: torch.Tensor) -> str | None:
    """What is wrong with an answer; equal logits may come in any order."""
    hidden, weight = whole(case)
    logprobs = torch.log_softmax((hidden @ weight.T).double(), dim=1)
    want, want_ids = torch.sort(logprobs, dim=1, descending=True)
    k = case["k"]
    if not torch.allclose(values.double(), want[:, :k], atol=1e-5):
        return "values"
    if any(len(set(row)) < k for row in ids.tolist()):
        return "a token twice"
    if int(ids.min()) < 0 or int(ids.max()) >= weight.shape[0]:
        return "no such token"
    if not torch.allclose(logprobs.gather(1, ids), values.double(), atol=1e-5):
        return "tokens"
    if not case["ties"] and not torch.equal(ids, want_ids[:, :k]):
        return "order"
    return None


def main() -> None:
    wanted = json.load(sys.stdin)
    ranks = on_every_rank(wanted["ranks"], work, wanted["cases"])
    answers = []
    for number, case in enumerate(wanted["cases"]):
        values, ids = (torch.tensor(x) for x in ranks[0][number])
        found = difference(case, values, ids)
        answers.append({"same": all(rank[number] == ranks[0][number] for rank in ranks), "right": not found, "found": found})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
