"""Run on the CPU engine's Python: the sgl_kernel stand-in against brute force; a failed assertion ends the process."""

from __future__ import annotations

import importlib.util
import itertools
import random

import sgl_kernel
import torch
from sgl_kernel import quantization
from sgl_kernel.kvcacheio import transfer_kv_per_layer


def renormalisation() -> None:
    """Word by word in Python; ties at the k-th place stay, and so does the word that reaches p."""
    generator = torch.Generator().manual_seed(1)
    probs = torch.rand(40, 9, generator=generator, dtype=torch.float64)
    probs[::3] = (probs[::3] * 4).ceil()  # ties
    probs /= probs.sum(dim=1, keepdim=True)
    top_k = torch.randint(1, 12, (40,), generator=generator)
    top_p = torch.rand(40, generator=generator, dtype=torch.float64)
    by_k, by_p = sgl_kernel.top_k_renorm_prob(probs, top_k), sgl_kernel.top_p_renorm_prob(probs, top_p)
    for row, k, p, got_k, got_p in zip(probs.tolist(), top_k.tolist(), top_p.tolist(), by_k, by_p, strict=True):
        pivot = sorted(row, reverse=True)[min(k, 9) - 1]
        kept = [q if q >= pivot else 0 for q in row]
        assert torch.allclose(got_k, torch.tensor(kept, dtype=torch.float64) / sum(kept))
        kept, reached = [0.0] * 9, 0.0
        for word in sorted(range(9), key=lambda word: (-row[word], word)):
            if reached >= p:
                break
            kept[word] = row[word]
            reached += row[word]
        assert torch.allclose(got_p.sort().values, (torch.tensor(kept, dtype=torch.float64) / sum(kept)).sort().values)
    assert torch.equal(sgl_kernel.top_k_renorm_prob(probs, 3), sgl_kernel.top_k_renorm_prob(probs, torch.full((40,), 3)))


def random_tree(n: int, words: int, rng: random.Random) -> dict[str, list[int]]:
    """A tree in level order whose siblings drafted different words; `parent` is for brute force only."""
    parent, children = [-1], [[] for _ in range(n)]
    for node in range(1, n):
        # In level order a node's parent is not before its elder neighbour's.
        parent.append(rng.choice([p for p in range(max(parent[-1], 0), node) if len(children[p]) < words]))
        children[parent[node]].append(node)
    token, first, sibling = [0] * n, [-1] * n, [-1] * n
    for node, mine in enumerate(children):
        for child, word in zip(mine, rng.sample(range(words), len(mine)), strict=True):
            token[child] = word
        first[node] = mine[0] if mine else -1
        for elder, younger in itertools.pairwise(mine):
            sibling[elder] = younger
    return {"parent": parent, "token": token, "first": first, "sibling": sibling}


def stacked(trees: list[dict[str, list[int]]], *names: str) -> list[torch.Tensor]:
    return [torch.tensor([tree[name] for tree in trees]) for name in names]


def greedy_walk() -> None:
    """The longest root path on which every node is what the target said after its parent."""
    rng = random.Random(2)
    b, n, words = 60, 12, 5
    trees = [random_tree(n, words, rng) for _ in range(b)]
    target = torch.tensor([[rng.randrange(words) for _ in range(n)] for _ in range(b)])
    token, first, sibling = stacked(trees, "token", "first", "sibling")
    flat = torch.arange(b * n).view(b, n)
    predicts, index, number = torch.full((b * n,), -1), torch.full((b, n), -1), torch.full((b,), -1)
    sgl_kernel.verify_tree_greedy(predicts, index, number, token, flat, first, sibling, target)
    longest = 0
    for i, tree in enumerate(trees):
        paths = []
        for node in range(n):
            path = [node]
            while path[0]:
                path.insert(0, tree["parent"][path[0]])
            if all(tree["token"][child] == target[i, node_] for node_, child in itertools.pairwise(path)):
                paths.append(path)
        best = max(paths, key=len)
        longest = max(longest, len(best))
        assert int(number[i]) == len(best) - 1
        assert index[i].tolist() == [i * n + node for node in best] + [-1] * (n - len(best))
        assert [int(predicts[i * n + node]) for node in best] == [int(target[i, node]) for node in best]
    assert longest > 3, "the random trees never accept anything"


def sampling_is_exact() -> None:
    """Over an even grid of uniform numbers, each node's token comes as often as the target gives it."""
    grid, words = 20, 4
    #      0 -> 1 (word 2), 2 (word 0); 1 -> 3 (word 1)
    tree = {"token": [0, 2, 0, 1], "first": [1, 3, -1, -1], "sibling": [-1, 2, -1, -1]}
    probs = torch.tensor([[0.2, 0.15, 0.4, 0.25], [0.1, 0.5, 0.3, 0.1], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.4, 0.1]])
    even = (torch.arange(grid) + 0.5) / grid
    points = torch.cartesian_prod(even, even, even)
    b, n = points.shape[0], 4
    token, first, sibling = stacked([tree] * b, "token", "first", "sibling")
    coins = torch.stack([points[:, 0], points[:, 1], points[:, 0], points[:, 0]], dim=1)
    predicts, index, number = torch.full((b * n,), -1), torch.full((b, n), -1), torch.full((b,), -1)
    arguments = (predicts, index, number, token, torch.arange(b * n).view(b, n), first, sibling, coins, points[:, 2])
    draft = torch.zeros(b, n, words)
    sgl_kernel.tree_speculative_sampling_target_only(*arguments, probs.expand(b, n, words), draft)
    at_root = predicts.view(b, n)[:, 0]
    frequency = at_root.bincount(minlength=words) / b
    assert torch.allclose(frequency, probs[0], atol=0.03), frequency
    deeper = predicts.view(b, n)[at_root == 2, 1]
    frequency = deeper.bincount(minlength=words) / deeper.numel()
    assert torch.allclose(frequency, probs[1], atol=0.03), frequency
    assert torch.equal(number > 0, (at_root == 2) | (at_root == 0)), "a drafted token is accepted, another one isn't"


def everything_else_says_that_it_is_missing() -> None:
    for op, name in (
        (sgl_kernel.moe_align_block_size, "sgl_kernel.moe_align_block_size"),
        (transfer_kv_per_layer, "sgl_kernel.kvcacheio.transfer_kv_per_layer"),
        (quantization.ggml_dequantize, "sgl_kernel.quantization.ggml_dequantize"),
    ):
        try:
            op(1, key=2)
        except NotImplementedError as error:
            assert name in str(error), error
        else:
            raise AssertionError(f"{name} did not raise")
    assert importlib.util.find_spec("sgl_kernel.scalar_type") is None, "it hides SGLang's own"


if __name__ == "__main__":
    for check in (renormalisation, greedy_walk, sampling_is_exact, everything_else_says_that_it_is_missing):
        check()
        print(check.__name__)
