"""DDTREE's parts against what is slow and obvious: a heap, a recursion, a loop, and every outcome of every sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.checking import check

UTILS = "sglang/srt/speculative/ddtree_utils.py"
KERNELS = "sglang/srt/speculative/triton_ops/ddtree.py"
#: Breaks the mask: siblings see each other.
VISIBLE_SIBLING = (
    "    visible = ancestors_or_self(tree)\n    bs, width, _ = visible.shape\n",
    "    visible = ancestors_or_self(tree)\n    bs, width, _ = visible.shape\n"
    "    visible |= tree.parents.unsqueeze(1) == tree.parents.unsqueeze(2)\n",
)

implementations = pytest.mark.parametrize("implementation", ["torch", "triton"])


@implementations
def test_tree_is_the_heaps(patched_tree: Path, implementation: str) -> None:
    """1,000 requests, budgets 1 to 128, depths 1 to 15, ties in a third: same nodes, order and links."""
    done = check(patched_tree, "tree_build", requests=1000, seed=1, implementation=implementation)
    assert done == {"requests": 1000, "mismatches": [], "changed": 0}


def test_tree_check_sees_a_wrong_tie_break(mutated_tree) -> None:
    broken = mutated_tree(UTILS, "scores, order = torch.sort(candidates, dim=1, descending=True, stable=True)",
                          "scores, order = torch.sort(candidates.flip(1), dim=1, descending=True, stable=True)\n"
                          "        order = candidates.shape[1] - 1 - order")  # fmt: skip
    assert check(broken, "tree_build", requests=80, seed=1, implementation="torch")["mismatches"]


@implementations
def test_mask_and_walk_are_the_obvious_ones(patched_tree: Path, implementation: str) -> None:
    done = check(patched_tree, "tree_walk", requests=200, seed=3, implementation=implementation)
    assert done["mismatches"] == []
    assert done["requests"] == 200 and done["accepted"] > 100


def test_walk_check_sees_a_visible_sibling(mutated_tree) -> None:
    broken = mutated_tree(UTILS, *VISIBLE_SIBLING)
    assert "mask" in check(broken, "tree_walk", requests=80, seed=3, implementation="torch")["mismatches"]


@implementations
def test_walk_check_sees_two_paths(mutated_tree, implementation: str) -> None:
    one_child = {
        "torch": (UTILS, "    match &= ~twins.triu(diagonal=1).any(dim=2)\n", ""),
        "triton": (KERNELS, "accepted = accepted | (match & (slot == child))", "accepted = accepted | match"),
    }
    broken = mutated_tree(*one_child[implementation])
    assert "walk" in check(broken, "tree_walk", requests=80, seed=3, implementation=implementation)["mismatches"]


def test_sampled_verify_commits_the_targets_own_distribution(patched_tree: Path) -> None:
    """Enumerated, not sampled: vocabulary 3, depth 2, 4 nodes, every joint outcome of one sample a node."""
    done = check(patched_tree, "distribution", trees=40, seed=1)
    assert done["largest_difference"] < 1e-12
    assert done["off_spine"] > 0.1, "the trees hardly ever left the drafter's best path, so this shows little"


def test_distribution_check_sees_a_biased_walk(mutated_tree) -> None:
    """Taking a child that the target did not sample is what makes outputs follow the drafter."""
    broken = mutated_tree(UTILS, "    match[:, 0] = True\n", "    match[:, :2] = True\n")
    assert check(broken, "distribution", trees=10, seed=1)["largest_difference"] > 0.01
