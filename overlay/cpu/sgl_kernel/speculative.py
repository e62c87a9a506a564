"""The ops that sampling and tree verification call, in plain torch, with the semantics of sgl-kernel's CUDA ones.

Shapes: b requests, n nodes of a request's tree with the root first, s accepted nodes at most (the root among them),
v words of the vocabulary. Trees come as first child and next sibling of each node, -1 for none.
"""

from __future__ import annotations

import torch


def top_k_renorm_prob(probs: torch.Tensor, top_k: torch.Tensor | int) -> torch.Tensor:
    """Keep each row's `top_k` most probable words (all that tie with the last of them), scaled to sum to one.

    probs [b, v]; top_k a number or [b]. Returns [b, v].
    """
    k = torch.as_tensor(top_k, device=probs.device).long().clamp(1, probs.shape[-1]).expand(probs.shape[0])
    pivot = probs.sort(dim=-1, descending=True).values.gather(1, k[:, None] - 1)
    kept = torch.where(probs >= pivot, probs, 0)
    return kept / kept.sum(dim=-1, keepdim=True)


def top_p_renorm_prob(probs: torch.Tensor, top_p: torch.Tensor | float) -> torch.Tensor:
    """Keep each row's fewest most probable words that reach `top_p` together, scaled to sum to one.

    probs [b, v]; top_p a number or [b]. Returns [b, v].
    """
    p = torch.as_tensor(top_p, device=probs.device, dtype=probs.dtype).expand(probs.shape[0])
    ordered, words = probs.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    kept = torch.zeros_like(probs).scatter(1, words, torch.where(before < p[:, None], ordered, 0))
    return kept / kept.sum(dim=-1, keepdim=True)


def verify_tree_greedy(
    predicts: torch.Tensor,  # [b * n] out: the target's token at every accepted node
    accept_index: torch.Tensor,  # [b, s] out: flat indices of the accepted nodes, root first
    accept_token_num: torch.Tensor,  # [b] out: accepted nodes beside the root
    candidates: torch.Tensor,  # [b, n] drafted token of each node
    retrive_index: torch.Tensor,  # [b, n] flat index of each node
    retrive_next_token: torch.Tensor,  # [b, n] first child
    retrive_next_sibling: torch.Tensor,  # [b, n]
    target_predict: torch.Tensor,  # [b, n] the target's token after each node
) -> None:
    """Walk from the root to the child that drafted the target's token, as far as there is one."""
    wanted = target_predict.flatten().tolist()
    for b in range(accept_index.shape[0]):
        flat, child, sibling, drafted = _rows(b, retrive_index, retrive_next_token, retrive_next_sibling, candidates)
        node, accepted = 0, [flat[0]]
        while len(accepted) < accept_index.shape[1]:
            node = child[node]
            while node != -1 and drafted[node] != wanted[accepted[-1]]:
                node = sibling[node]
            if node == -1:
                break
            accepted.append(flat[node])
        for index in accepted:
            predicts[index] = wanted[index]
        accept_index[b, : len(accepted)] = torch.tensor(accepted, dtype=accept_index.dtype)
        accept_token_num[b] = len(accepted) - 1


def tree_speculative_sampling_target_only(
    predicts: torch.Tensor,  # [b * n] out: the sampled token at every accepted node
    accept_index: torch.Tensor,  # [b, s] out
    accept_token_num: torch.Tensor,  # [b] out
    candidates: torch.Tensor,  # [b, n]
    retrive_index: torch.Tensor,  # [b, n]
    retrive_next_token: torch.Tensor,  # [b, n]
    retrive_next_sibling: torch.Tensor,  # [b, n]
    uniform_samples: torch.Tensor,  # [b, n] in [0, 1)
    uniform_samples_for_final_sampling: torch.Tensor,  # [b] in [0, 1)
    target_probs: torch.Tensor,  # [b, n, v]
    draft_probs: torch.Tensor,  # [b, n, v] in: zeros; out: the target's probability of each refused child
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Sample the target's token at every node by one uniform number, descend while a child drafted it.

    A child is accepted if the number lies below the summed probability of it and its elder siblings (over
    `threshold_acc`), or its own reaches `threshold_single`. The last token is drawn from what is left of the target's
    distribution when the refused children are taken out.
    """
    for b in range(accept_index.shape[0]):
        flat, child, sibling, drafted, uniform = _rows(
            b, retrive_index, retrive_next_token, retrive_next_sibling, candidates, uniform_samples
        )
        at, accepted = 0, [flat[0]]
        while len(accepted) < accept_index.shape[1]:
            node, summed = child[at], 0.0
            while node != -1:
                probability = float(target_probs[b, at, drafted[node]])
                summed += probability
                if uniform[at] <= summed / threshold_acc or probability >= threshold_single:
                    break
                draft_probs[b, at, drafted[node]] = probability
                node = sibling[node]
            if node == -1:
                break
            predicts[accepted[-1]] = drafted[node]
            accepted.append(flat[node])
            at = node
        left = target_probs[b, at].double()
        if len(accepted) < accept_index.shape[1]:
            left = (left - draft_probs[b, at].double()).clamp(min=0)
        reached = left.cumsum(dim=0)
        drawn = reached > float(uniform_samples_for_final_sampling[b]) * float(reached[-1])
        predicts[accepted[-1]] = int(drawn.nonzero()[0])
        accept_index[b, : len(accepted)] = torch.tensor(accepted, dtype=accept_index.dtype)
        accept_token_num[b] = len(accepted) - 1


def _rows(b: int, *tensors: torch.Tensor) -> list[list]:
    return [tensor[b].tolist() for tensor in tensors]
