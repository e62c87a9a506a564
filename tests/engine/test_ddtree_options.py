"""DDTREE's options: which tree each builds, that none changes a token, and what each costs in verify steps.

Deliberate breakages, each caught by a test of its own here:

* the spine is not reserved                   `test_caught_a_spine_that_is_not_reserved`
* the spine's own order is not kept           `test_caught_a_spine_in_order_of_score`
* ranks are read that were not drafted        `test_caught_a_tree_larger_than_its_ranks`
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.checking import assert_refused, check, refusals
from tests.engine.harness import Run, generate, prompts
from tests.engine.test_ddtree_pieces import UTILS, implementations

#: Verify steps of the 16 prompts of the README's table, 129 tokens each, budget 22 unless it says otherwise; 470 without options.
STEPS = {"topk 2": ({"speculative_ddtree_topk": 2}, 516), "spine": ({"speculative_ddtree_spine": True}, 500)}
#: A setting, and what its refusal must name; None for one that starts.
SETTINGS: list[tuple[dict, str | None]] = [
    ({"speculative_ddtree_budget": "auto"}, None),
    ({"speculative_ddtree_budget": "much"}, "--speculative-ddtree-budget"),
    ({"speculative_ddtree_budget": True}, "--speculative-ddtree-budget"),
    ({"speculative_ddtree_topk": 1, "speculative_ddtree_budget": 15}, None),
    ({"speculative_ddtree_topk": 1, "speculative_ddtree_budget": 16}, "--speculative-ddtree-budget to 15 or less"),
    ({"speculative_ddtree_topk": 0}, "--speculative-ddtree-topk"),
    ({"speculative_ddtree_topk": 2.5}, "--speculative-ddtree-topk"),
    ({"speculative_ddtree_topk": 1000}, None),
    ({"speculative_ddtree_spine": True, "speculative_ddtree_budget": 4}, None),
]


def run(tree: Path, count: int = 20, **engine: object) -> Run:
    """The first prompts of qwen3-tiny, greedy, fp32."""
    arguments = {"pair": "qwen3-tiny", "prompts": prompts("qwen3-tiny")[:count], "max_new_tokens": 129 if count == 16 else 64}
    return generate(tree, **arguments, engine=engine and {"speculative_algorithm": "DDTREE"} | engine)


@implementations
@pytest.mark.parametrize("options", [{"spine": True}, {"ranks": 3}, {"spine": True, "ranks": 2}], ids=str)
def test_tree_is_the_heaps(patched_tree: Path, implementation: str, options: dict) -> None:
    """A heap from which the best path is taken first, or of fewer ranks, or both: same nodes, order and links."""
    done = check(patched_tree, "tree_build", requests=80, seed=2, implementation=implementation, max_budget=32, **options)
    assert (done["requests"], done["mismatches"]) == (80, [])
    assert done["changed"] > 20, "the options hardly change a tree, so this shows little"


@pytest.mark.parametrize(
    "options",
    [
        {"speculative_ddtree_budget": "auto"},
        {"speculative_ddtree_budget": 22, "speculative_ddtree_topk": 2},
        {"speculative_ddtree_budget": 15, "speculative_ddtree_topk": 1},
        {"speculative_ddtree_budget": 22, "speculative_ddtree_spine": True},
        {"speculative_ddtree_budget": 4, "speculative_ddtree_topk": 3, "speculative_ddtree_spine": True},
    ],
    ids=["auto", "two ranks", "one rank", "spine", "a spine cut to 4"],
)
def test_tokens_equal_plain_decoding(patched_tree: Path, options: dict) -> None:
    assert run(patched_tree, **options).outputs == run(patched_tree).outputs


@pytest.mark.parametrize("options", STEPS)
def test_verify_steps_are_the_readmes(patched_tree: Path, options: str) -> None:
    engine, steps = STEPS[options]
    assert run(patched_tree, 16, **{"speculative_ddtree_budget": 22} | engine).verify_steps == pytest.approx(steps, rel=0.01)


def test_values(patched_tree: Path) -> None:
    """A valid value starts; any other is one sentence that names the option and, where there is one, a value that fits."""
    assert_refused(patched_tree, SETTINGS)


def test_caught_a_spine_that_is_not_reserved(mutated_tree) -> None:
    broken = mutated_tree(UTILS, "    if spine:\n", "    if False:\n")
    assert check(broken, "tree_build", requests=80, seed=2, implementation="torch", spine=True)["mismatches"]


def test_caught_a_spine_in_order_of_score(mutated_tree) -> None:
    """Right nodes, but not the order in which the kernel has them."""
    broken = mutated_tree(UTILS, 'scores[:, first_of_level] = float("inf")', "scores[:, first_of_level[1:]] -= 1e-3")
    assert check(broken, "tree_build", requests=80, seed=2, implementation="torch", spine=True)["mismatches"]


def test_caught_a_tree_larger_than_its_ranks(mutated_tree) -> None:
    broken = mutated_tree("sglang/srt/speculative/ddtree_options.py", "    if capacity < budget:\n", "    if False:\n")
    setting = {"speculative_ddtree_topk": 1, "speculative_ddtree_budget": 16}
    assert refusals(broken, [setting]) == [None], "so test_values would fail"
