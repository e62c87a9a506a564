"""The exact distribution of the tokens that a sampled verify commits, by enumerating every outcome of every node's sample.

Reads {"seed", "trees"}, prints {"trees", "largest_difference", "off_spine"}: for random targets over a vocabulary of three
tokens and random trees of depth two, the largest difference between the probability of each continuation under tree
verification and under plain sampling, and the probability that a continuation left the drafter's best path.
"""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import torch
from sglang.srt.speculative import ddtree_utils

VOCABULARY = 3
DEPTH = 2
BUDGET = 4


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def main() -> None:
    wanted = json.load(sys.stdin)
    random = np.random.default_rng(wanted["seed"])
    largest, off_spine = 0.0, 0.0
    for _ in range(wanted["trees"]):
        draft = torch.from_numpy(np.log(softmax(random.normal(size=(1, DEPTH, VOCABULARY)) * 2))).float()
        # The smallest vocabulary has fewer ranks than the tree has nodes: the missing ones can never be chosen.
        logprobs, ids = torch.sort(draft, dim=-1, descending=True)
        missing = BUDGET - VOCABULARY
        logprobs = torch.nn.functional.pad(logprobs, (0, missing), value=float("-inf"))
        ids = torch.nn.functional.pad(ids, (0, missing), value=-7)
        tree = ddtree_utils.build_ddtree(
            root_tokens=torch.zeros(1, dtype=torch.int64), topk_logprobs=logprobs, topk_ids=ids, budget=BUDGET
        )
        tokens, parents = tree.tokens[0].tolist(), tree.parents[0].tolist()
        # The target's next-token distribution depends on all tokens since the root.
        target = {
            history: softmax(random.normal(size=VOCABULARY) * 1.5)
            for length in range(DEPTH + 1)
            for history in itertools.product(range(VOCABULARY), repeat=length)
        }
        histories: list[tuple[int, ...]] = [()]
        for node in range(1, BUDGET + 1):
            histories.append((*histories[parents[node]], tokens[node]))

        # Every joint outcome of one sample a node, walked in one batch.
        outcomes = list(itertools.product(range(VOCABULARY), repeat=BUDGET + 1))
        batch = ddtree_utils.DDTree(
            *(
                x.expand(len(outcomes), -1)
                for x in (tree.tokens, tree.depths, tree.parents, tree.next_tokens, tree.next_siblings, tree.ranks)
            ),
            max_depth=tree.max_depth,
        )
        predicted = torch.tensor(outcomes)
        lens, order = ddtree_utils.walk_ddtree(batch, predicted)
        committed: dict[tuple[int, ...], float] = {}
        for outcome, length, nodes in zip(outcomes, lens.tolist(), order.tolist(), strict=True):
            weight = float(np.prod([target[histories[node]][token] for node, token in enumerate(outcome)]))
            path = nodes[: length + 1]
            text = (*(tokens[node] for node in path[1:]), outcome[path[-1]])
            committed[text] = committed.get(text, 0.0) + weight
            if any(node not in _spine(parents, tokens, ids[0, :, 0].tolist()) for node in path):
                off_spine += weight

        # A commit of k tokens must have the probability that plain sampling gives those k tokens, given that the walk
        # stops there; summed over what follows, each prefix has its plain probability.
        for length in range(1, DEPTH + 2):
            for text in itertools.product(range(VOCABULARY), repeat=length):
                under_tree = 0.0
                for done, weight in committed.items():
                    if done[:length] == text:
                        under_tree += weight
                    elif text[: len(done)] == done:
                        under_tree += weight * _plain(target, text[len(done) :], done)
                largest = max(largest, abs(under_tree - _plain(target, text, ())))
    print(json.dumps({"trees": wanted["trees"], "largest_difference": largest, "off_spine": off_spine / wanted["trees"]}))


def _plain(target: dict, text: tuple[int, ...], after: tuple[int, ...]) -> float:
    """Probability of `text` by plain sampling after `after`."""
    probability = 1.0
    for at, token in enumerate(text):
        probability *= float(target[(*after, *text[:at])][token])
    return probability


def _spine(parents: list[int], tokens: list[int], best: list[int]) -> set[int]:
    """Nodes along the drafter's best token at each depth."""
    spine, last, depth = {0}, 0, 0
    for node in range(1, len(tokens)):
        if parents[node] == last and depth < len(best) and tokens[node] == best[depth]:
            spine.add(node)
            last, depth = node, depth + 1
    return spine


if __name__ == "__main__":
    main()
