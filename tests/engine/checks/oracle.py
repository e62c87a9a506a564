"""What a draft tree must be, written the slow and obvious way: a heap, a recursion, a loop over pairs.

Runs in the engine's interpreter beside the code under test; needs numpy for single-precision sums, nothing of SGLang.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tree:
    """Nodes in order, the root first; the root is its own parent."""

    tokens: list[int]
    depths: list[int]
    parents: list[int]

    def children(self, node: int) -> list[int]:
        return [child for child in range(1, len(self.tokens)) if self.parents[child] == node]

    def paths(self) -> list[tuple[int, ...]]:
        """Each node's tokens from below the root down."""
        found: list[tuple[int, ...]] = [()]
        for node in range(1, len(self.tokens)):
            found.append((*found[self.parents[node]], self.tokens[node]))
        return found

    def ancestors_or_self(self, node: int) -> set[int]:
        line = {node}
        while node:
            node = self.parents[node]
            line.add(node)
        return line


def best_first(root: int, logprobs: np.ndarray, ids: np.ndarray, budget: int, *, spine: bool = False) -> Tree:
    """Best-first search with a heap, as in arXiv 2604.12989, algorithm 1.

    `logprobs` and `ids` are [depth, rank], descending. Equal scores: the shallower node, the better parent, the better rank.
    Sums are single-precision, parent first, since that is what the score of a node means to the engine.
    With `spine` the best token of each depth is taken first, as deep as the budget goes, whatever else the heap holds.
    """
    tree = Tree([root], [0], [0])
    scores = [np.float32(0)]

    def entry(parent: int, rank: int) -> tuple[float, int, int, int]:
        depth = tree.depths[parent] + 1
        return (-float(scores[parent] + logprobs[depth - 1, rank]), depth, parent, rank)

    heap = [entry(0, 0)]
    while len(tree.tokens) <= budget:
        node = len(tree.tokens)
        if spine and node <= logprobs.shape[0]:
            heap.remove(entry(node - 1, 0))
            heapq.heapify(heap)
            negated, depth, parent, rank = entry(node - 1, 0)
        else:
            negated, depth, parent, rank = heapq.heappop(heap)
        tree.tokens.append(int(ids[depth - 1, rank]))
        tree.depths.append(depth)
        tree.parents.append(parent)
        scores.append(np.float32(-negated))
        if rank + 1 < logprobs.shape[1]:
            heapq.heappush(heap, entry(parent, rank + 1))
        if depth < logprobs.shape[0]:
            heapq.heappush(heap, entry(node, 0))
    return tree


def walk(tree: Tree, predicted: list[int]) -> list[int]:
    """Nodes from the root down, as long as the token predicted after a node is among its children: the last of equal ones."""
    path = [0]
    while True:
        matching = [child for child in tree.children(path[-1]) if tree.tokens[child] == predicted[path[-1]]]
        if not matching:
            return path
        path.append(matching[-1])
