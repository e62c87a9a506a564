"""Compare the engine's verify mask and acceptance walk with a loop and a recursion over the same trees.

Reads {"requests", "seed", "implementation"}, prints {"requests", "accepted", "mismatches"}; `accepted` says how many draft
nodes the walks accepted in all, so that a test can see that they went somewhere.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from cases import BATCH, VOCABULARY, batches
from oracle import Tree, walk
from sglang.srt.speculative import ddtree_utils
from sglang.srt.speculative.triton_ops import ddtree as triton_ops


def predictions(tree: Tree, random: np.random.Generator) -> list[int]:
    """A target that mostly agrees with some child of each node: not always the first, not always any."""
    predicted = random.integers(VOCABULARY, size=len(tree.tokens)).tolist()
    for node in range(len(tree.tokens)):
        children = tree.children(node)
        if children and random.random() < 0.8:
            predicted[node] = tree.tokens[random.choice(children)]
    return predicted


def twins(built: ddtree_utils.DDTree) -> None:
    """Give two children of the root one token, as a row of NaN does."""
    for tokens, parents in zip(built.tokens[::3], built.parents[::3], strict=True):
        children = [node for node in range(1, len(parents)) if parents[node] == 0]
        tokens[children[-1]] = tokens[children[0]]


def expected_mask(tree: Tree, prefix: int) -> list[bool]:
    """Row by row, what each node sees of the prefix and of the tree."""
    width = len(tree.tokens)
    return [
        column < prefix or column - prefix in tree.ancestors_or_self(node)
        for node in range(width)
        for column in range(prefix + width)
    ]


def main() -> None:
    wanted = json.load(sys.stdin)
    random = np.random.default_rng(wanted["seed"])
    requests, accepted, mismatches = 0, 0, []
    for batch in batches(wanted["requests"], wanted["seed"], max_budget=40):
        roots, logprobs, ids = (torch.from_numpy(x) for x in (batch.roots, batch.logprobs, batch.ids))
        built = ddtree_utils.build_ddtree(root_tokens=roots, topk_logprobs=logprobs, topk_ids=ids, budget=batch.budget)
        twins(built)
        trees = [Tree(*(x[row].tolist() for x in (built.tokens, built.depths, built.parents))) for row in range(BATCH)]
        predicted = [predictions(tree, random) for tree in trees]
        prefixes = torch.from_numpy(random.integers(0, 40, size=BATCH))
        total = int(prefixes.sum())
        if wanted["implementation"] == "triton":
            mask = triton_ops.verify_mask(built.parents, built.depths, prefixes, total)
            lens, order = triton_ops.walk(built.tokens, built.parents, torch.tensor(predicted), built.max_depth)
        else:
            mask = ddtree_utils.build_ddtree_verify_mask(built, prefixes, total)
            lens, order = ddtree_utils.walk_ddtree(built, torch.tensor(predicted))

        want = [bit for tree, prefix in zip(trees, prefixes.tolist(), strict=True) for bit in expected_mask(tree, prefix)]
        if mask.tolist() != want:
            mismatches.append("mask")
        for row, tree in enumerate(trees):
            path = walk(tree, predicted[row])
            rest = [node for node in range(len(tree.tokens)) if node not in path]
            requests += 1
            accepted += len(path) - 1
            if int(lens[row]) != len(path) - 1 or order[row].tolist() != path + rest:
                mismatches.append("walk")
    print(json.dumps({"requests": requests, "accepted": accepted, "mismatches": mismatches}))


if __name__ == "__main__":
    main()
