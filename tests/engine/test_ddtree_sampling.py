"""Sampled tokens through the engine at temperature 1: 1,600 requests under DDTREE and 1,600 without it, one distribution.

Two-sample chi-square of the joint counts of the first tokens, with cells pooled to an expected count of at least 5 in each
sample. Two deliberate breakages that follow the drafter, or one sample, must be beyond the bound.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.harness import Run, generate
from tests.engine.test_ddtree_pieces import UTILS

#: Prompts after which the target is unsure, within few tokens.
PROMPTS = ["zzz", "item item"]
EACH = 800
#: Tokens counted: the first comes from prefill, the others from trees.
TOKENS = 4
#: A correct engine fails one seed in ten thousand; the seed is fixed.
BOUND = 1e-4


def sampled(tree: Path, seed: int, **engine: object) -> Run:
    return generate(
        tree,
        pair="qwen3-nano",
        prompts=[prompt for prompt in PROMPTS for _ in range(EACH)],
        max_new_tokens=TOKENS + 2,
        sampling={"temperature": 1.0},
        engine={"random_seed": seed, "max_running_requests": 64, "max_total_tokens": 32768} | engine,
    )


def ddtree(tree: Path) -> Run:
    return sampled(tree, 2, speculative_algorithm="DDTREE", speculative_ddtree_budget=8)


def p_value(one: Run, other: Run) -> float:
    """Of the hypothesis that both runs have the same distribution of prompt and first tokens."""
    counts = [Counter((at // EACH, *output[:TOKENS]) for at, output in enumerate(run.outputs)) for run in (one, other)]
    cells = [(counts[0][cell], counts[1][cell]) for cell in counts[0] | counts[1]]
    # Samples of equal size: a cell's expected count is the mean of its two counts. Rare cells go together.
    common = [cell for cell in cells if sum(cell) >= 10]
    rare = [cell for cell in cells if sum(cell) < 10]
    common.append((sum(a for a, _ in rare), sum(b for _, b in rare)))
    if sum(common[-1]) < 10:
        a, b = common.pop()
        common[0] = (common[0][0] + a, common[0][1] + b)
    assert len(common) >= 10, f"{len(common)} cells: this shows little"
    return survival(sum((a - b) ** 2 / (a + b) for a, b in common), len(common) - 1)


def survival(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic): the upper incomplete gamma function, by its recurrence from 1 or 1/2."""
    half = statistic / 2
    if freedom % 2:
        tail, power = math.erfc(math.sqrt(half)), 0.5
    else:
        tail, power = math.exp(-half), 1.0
    while power < freedom / 2:
        tail += math.exp(power * math.log(half) - half - math.lgamma(power + 1)) if half else 0.0
        power += 1
    return tail


def test_survival_is_the_tables() -> None:
    """The 5% points of the usual table."""
    for freedom, point in [(1, 3.841), (2, 5.991), (7, 14.067), (10, 18.307), (30, 43.773)]:
        assert survival(point, freedom) == pytest.approx(0.05, abs=1e-4)


@pytest.fixture(scope="module")
def plain(pristine_tree: Path) -> Run:
    return sampled(pristine_tree, 1)


def test_sampled_tokens_have_plain_decodings_distribution(patched_tree: Path, plain: Run) -> None:
    run = ddtree(patched_tree)
    assert run.verify_steps < 0.9 * sum(len(output) - 1 for output in run.outputs), "hardly anything was accepted"
    assert p_value(plain, run) > BOUND


def test_caught_following_the_drafter(mutated_tree, plain: Run) -> None:
    """The drafter's best token is accepted whatever the target sampled."""
    broken = mutated_tree(UTILS, "    match[:, 0] = True\n", "    match[:, :2] = True\n")
    assert p_value(plain, ddtree(broken)) < BOUND


def test_caught_taking_argmax_below_the_root(mutated_tree, plain: Run) -> None:
    """Only the root's token is sampled."""
    broken = mutated_tree(
        UTILS,
        "    return ids.view(-1, width).to(torch.int64)\n",
        "    ids = ids.view(-1, width).to(torch.int64)\n"
        "    ids[:, 1:] = torch.argmax(logits, dim=-1).view(-1, width)[:, 1:]\n    return ids\n",
    )
    assert p_value(plain, ddtree(broken)) < BOUND
