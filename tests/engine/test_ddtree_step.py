"""DDTREE's decode step of CUDA graphs, with each graph's operations run on the CPU (`eager_step.py`).

The oracle is plain decoding. A GPU shows what is left: the graphs' own memory and streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.checking import SEEDED, SEEDS
from tests.engine.harness import EngineFailure, Run, generate, prompts

WORKER = "sglang/srt/speculative/dflash_worker.py"
ROTARY = "sglang/srt/layers/rotary_embedding/base.py"
STEP = "sglang/srt/speculative/ddtree_step.py"
PAIR = "qwen3-tiny"
TOKENS = 24

_GATE = "        if self.ddtree_budget is None or not is_cuda():\n            return None\n"
_EAGER = f"""        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import eager_step
        return eager_step.create(self)
"""


@pytest.fixture(scope="session")
def step_tree(mutated_tree: Callable[..., Path]) -> Path:
    """The patched tree, with the step of graphs on a CPU."""
    return mutated_tree(WORKER, _GATE, _EAGER)


def _run(tree: Path, budget: int | None, **more) -> Run:
    engine = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": budget} if budget else {}
    return generate(
        tree,
        pair=PAIR,
        prompts=more.pop("prompts", prompts(PAIR)[:20]),
        max_new_tokens=TOKENS,
        engine=engine | more.pop("engine", {}),
        **more,
    )


def _steps(run: Run) -> tuple[int, int]:
    """(steps of graphs, those whose draft was made ahead)."""
    last = re.findall(r"eager step (\d+), ahead (\d+)", run.log.read_text())[-1]
    return int(last[0]), int(last[1])


@pytest.mark.parametrize("budget", [4, 22])
def test_step_gives_the_tokens_of_plain_decoding_in_as_many_steps(step_tree: Path, patched_tree: Path, budget: int) -> None:
    plain = _run(patched_tree, None)
    by_operation = _run(patched_tree, budget)
    run = _run(step_tree, budget)
    assert run.outputs == plain.outputs
    assert run.verify_steps == by_operation.verify_steps
    steps, ahead = _steps(run)
    assert ahead > steps // 4, "hardly any draft was made ahead"


def test_one_request_at_a_time_drafts_ahead_in_nearly_every_step(step_tree: Path, patched_tree: Path) -> None:
    alone = {"engine": {"max_running_requests": 1}, "prompts": prompts(PAIR)[:4]}
    run = _run(step_tree, 15, **alone)
    assert run.outputs == _run(patched_tree, None, **alone).outputs
    steps, ahead = _steps(run)
    assert steps == run.verify_steps
    assert ahead == steps - 4, "only a request's first step finds no draft"


def test_requests_that_end_inside_a_path_leave_the_others_alone(step_tree: Path, patched_tree: Path) -> None:
    plain = _run(patched_tree, None)
    # Each request ends at another token of its own continuation.
    sampling = [{"stop_token_ids": [tokens[3 + i]], "max_new_tokens": TOKENS - i % 4} for i, tokens in enumerate(plain.outputs)]
    short = _run(patched_tree, None, sampling=sampling)
    run = _run(step_tree, 22, sampling=sampling)
    assert run.outputs == short.outputs
    assert [m["finish_reason"] for m in run.meta] == [m["finish_reason"] for m in short.meta]


def test_batches_that_the_step_does_not_take_go_through_the_other_and_come_back(step_tree: Path, patched_tree: Path) -> None:
    # A penalty keeps a batch out of the graphs for as long as its request runs.
    sampling = [{"max_new_tokens": 12, "frequency_penalty": 0.4} if i % 4 == 0 else {} for i in range(20)]
    run = _run(step_tree, 15, sampling=sampling)
    assert run.outputs == _run(patched_tree, None, sampling=sampling, engine={"disable_overlap_schedule": True}).outputs
    assert _steps(run)[1] > 0


def test_arrivals_and_prefixes_in_the_cache(step_tree: Path, patched_tree: Path) -> None:
    many = {"every": 2, "calls": 2}
    assert _run(step_tree, 15, **many).outputs == _run(patched_tree, None, **many).outputs


def test_seeded_samples_are_the_plain_samplers(seeded_tree: Callable[..., Path], step_tree: Path) -> None:
    tree = seeded_tree(step_tree)
    plain = generate(tree, **SEEDS, engine=SEEDED)
    run = generate(tree, **SEEDS, engine=SEEDED | {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8})
    assert run.outputs == plain.outputs
    assert _steps(run)[1] > 0


@pytest.mark.parametrize(("reserve", "growths"), [("= 1", 1), ("= 16", 2)], ids=["kept", "caught"])
def test_the_rotary_table_stays_where_the_targets_graphs_have_it(mutated_tree, reserve: str, growths: int) -> None:
    """Target and drafter share it. It grows for the target, before graphs are captured; for the drafter that were too late."""
    tell = "        cur_len = int(self.cos_sin_cache.shape[0])\n"
    tree = mutated_tree(ROTARY, tell, tell + "        if needed_max_pos >= cur_len: print('rotary table grows', flush=True)\n")
    tree = mutated_tree(WORKER, "speculative_num_steps = 1\n", f"speculative_num_steps {reserve}\n", base=tree)
    run = _run(tree, 7, prompts=prompts(PAIR)[:1], engine={"context_length": 4096})
    assert run.log.read_text().count("rotary table grows") == growths


BREAKAGES = [
    (
        "a draft is used for whatever batch comes",
        "        if self.ahead is None:\n            return False\n        reqs",
        "        if self.ahead is not None:\n            return True\n        reqs",
    ),
    ("the drafter's KV is written by node, not by path", "hidden[nodes.view(-1)]", "hidden[: nodes.numel()]"),
    ("slots are committed in the order of nodes", "        slots = slots.gather(1, order)\n", ""),
]


@pytest.mark.parametrize(("what", "old", "new"), BREAKAGES, ids=[row[0] for row in BREAKAGES])
def test_breakage_is_seen(mutated_tree, step_tree: Path, patched_tree: Path, what: str, old: str, new: str) -> None:
    few = {"prompts": prompts(PAIR)[:6]}
    plain, whole = _run(patched_tree, None, **few), _run(step_tree, 22, **few)
    try:
        run = _run(mutated_tree(STEP, old, new, base=step_tree), 22, timeout=240, **few)
    except EngineFailure:
        return  # the pools' check ended the engine
    assert run.outputs != plain.outputs or run.verify_steps > whole.verify_steps, what
