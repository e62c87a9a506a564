"""Compare the engine's tree builders with the heap: same nodes, same order, same links.

Reads {"requests", "seed", "implementation"}, prints {"requests": n, "mismatches": [..]}. `implementation` is "torch" (the
reference, which the CPU engine uses) or "triton" (the CUDA kernel, here in Triton's interpreter).
"""

from __future__ import annotations

import itertools
import json
import sys

import torch
from cases import BATCH, Batch, batches
from oracle import Tree, best_first
from sglang.srt.speculative import ddtree_utils
from sglang.srt.speculative.triton_ops import ddtree as triton_ops

Links = list[list[int]]


def build(batch: Batch, implementation: str) -> list[Links]:
    """Each request's tokens, depths, parents, first children and next siblings, by the engine."""
    roots, logprobs, ids = (torch.from_numpy(x) for x in (batch.roots, batch.logprobs, batch.ids))
    if implementation == "triton":
        nodes = triton_ops.build_tree(roots, logprobs, ids, width=batch.budget + 1, rows_per_program=BATCH)
    else:
        tree = ddtree_utils.build_ddtree(root_tokens=roots, topk_logprobs=logprobs, topk_ids=ids, budget=batch.budget)
        nodes = (tree.tokens, tree.depths, tree.parents, tree.next_tokens, tree.next_siblings)
    return [[x[row].tolist() for x in nodes] for row in range(len(roots))]


def expected(tree: Tree) -> Links:
    """The same five lists from the heap's tree."""
    first, sibling = [-1] * len(tree.tokens), [-1] * len(tree.tokens)
    for node in range(len(tree.tokens)):
        children = tree.children(node)
        if children:
            first[node] = children[0]
        for elder, younger in itertools.pairwise(children):
            sibling[elder] = younger
    return [tree.tokens, tree.depths, tree.parents, first, sibling]


def main() -> None:
    wanted = json.load(sys.stdin)
    requests, mismatches = 0, []
    for number, batch in enumerate(batches(wanted["requests"], wanted["seed"])):
        for row, found in enumerate(build(batch, wanted["implementation"])):
            want = expected(best_first(int(batch.roots[row]), batch.logprobs[row], batch.ids[row], batch.budget))
            requests += 1
            if found != want:
                mismatches.append({"batch": number, "row": row, "budget": batch.budget, "depth": batch.logprobs.shape[1]})
    print(json.dumps({"requests": requests, "mismatches": mismatches}))


if __name__ == "__main__":
    main()
