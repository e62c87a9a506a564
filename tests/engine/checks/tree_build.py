"""Compare the engine's tree builders with the heap: same nodes, same order, same links.

Reads {"requests", "seed", "implementation", and perhaps "spine", "ranks", "max_budget"}, prints {"requests": n,
"mismatches": [..], "changed": n}.
`implementation` is "torch" (the reference, which the CPU engine uses) or "triton" (the CUDA kernel, here in Triton's
interpreter). With "ranks" the drafter is read no deeper than that at each position, and the budget is cut to what the full
tree then holds. "changed" counts requests whose tree is not the exact best-first one: what the two options make of it.
"""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace

import torch
from cases import BATCH, Batch, batches
from oracle import Tree, best_first
from sglang.srt.speculative import ddtree_utils
from sglang.srt.speculative.triton_ops import ddtree as triton_ops

Links = list[list[int]]


def build(batch: Batch, implementation: str, spine: bool) -> list[Links]:
    """Each request's tokens, depths, parents, first children, next siblings and ranks, by the engine."""
    roots, logprobs, ids = (torch.from_numpy(x) for x in (batch.roots, batch.logprobs, batch.ids))
    if implementation == "triton":
        nodes = triton_ops.build_tree(roots, logprobs, ids, width=batch.budget + 1, rows_per_program=BATCH, spine=spine)
    else:
        tree = ddtree_utils.build_ddtree(
            root_tokens=roots, topk_logprobs=logprobs, topk_ids=ids, budget=batch.budget, spine=spine
        )
        nodes = (tree.tokens, tree.depths, tree.parents, tree.next_tokens, tree.next_siblings, tree.ranks)
    return [[x[row].tolist() for x in nodes] for row in range(len(roots))]


def expected(tree: Tree) -> Links:
    """The same six lists from the heap's tree."""
    first, sibling, ranks = [-1] * len(tree.tokens), [-1] * len(tree.tokens), [0] * len(tree.tokens)
    for node in range(len(tree.tokens)):
        children = tree.children(node)
        if children:
            first[node] = children[0]
        for elder, younger in itertools.pairwise(children):
            sibling[elder] = younger
        for rank, child in enumerate(children):
            ranks[child] = rank
    return [tree.tokens, tree.depths, tree.parents, first, sibling, ranks]


def cut(batch: Batch, ranks: int | None) -> Batch:
    """The batch of a drafter that is read only `ranks` deep, with a budget that its full tree holds."""
    if ranks is None:
        return batch
    depth = batch.logprobs.shape[1]
    held = sum(ranks**level for level in range(1, depth + 1))
    return replace(batch, logprobs=batch.logprobs[..., :ranks], ids=batch.ids[..., :ranks], budget=min(batch.budget, held))


def main() -> None:
    wanted = json.load(sys.stdin)
    spine, ranks = wanted.get("spine", False), wanted.get("ranks")
    requests, changed, mismatches = 0, 0, []
    for number, whole in enumerate(batches(wanted["requests"], wanted["seed"], max_budget=wanted.get("max_budget", 128))):
        batch = cut(whole, ranks)
        for row, found in enumerate(build(batch, wanted["implementation"], spine)):
            root = int(batch.roots[row])
            tree = best_first(root, batch.logprobs[row], batch.ids[row], batch.budget, spine=spine)
            changed += set(tree.paths()) != set(best_first(root, whole.logprobs[row], whole.ids[row], batch.budget).paths())
            want = expected(tree)
            requests += 1
            if found != want:
                mismatches.append({"batch": number, "row": row, "budget": batch.budget, "depth": batch.logprobs.shape[1]})
    print(json.dumps({"requests": requests, "mismatches": mismatches, "changed": changed}))


if __name__ == "__main__":
    main()
