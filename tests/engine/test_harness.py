"""The harness itself: a failing or hanging engine is an answer in seconds, with the log; nothing outlives it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.harness import EngineFailure, generate

RUN = {"pair": "qwen3-nano", "prompts": ["the quick brown"], "max_new_tokens": 4}
FILE = "sglang/srt/speculative/dflash_info.py"


def _writers(log: str) -> list[str]:
    """The processes that have `log` as their standard error: all of one engine, whatever became of their parents."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "fd" / "2").readlink() == Path(log):
                found.append(process.name)
    return found


def test_an_engine_that_refuses_its_arguments_shows_its_log(pristine_tree: Path) -> None:
    with pytest.raises(EngineFailure, match=r"(?s)exit status .*NO_SUCH_ALGORITHM"):
        generate(pristine_tree, **RUN, engine={"speculative_algorithm": "NO_SUCH_ALGORITHM"})


def test_a_scheduler_that_dies_shows_its_log(mutated_tree: Callable[..., Path]) -> None:
    line = "    def prepare_for_verify("
    tree = mutated_tree(FILE, line, "    def prepare_for_verify_renamed(")
    with pytest.raises(EngineFailure, match="prepare_for_verify"):
        generate(tree, **RUN, engine={"speculative_algorithm": "DFLASH"}, timeout=120)


def test_an_engine_that_takes_too_long_is_killed_with_all_its_processes(pristine_tree: Path) -> None:
    with pytest.raises(EngineFailure, match="killed after 4 s; the end of") as caught:
        generate(pristine_tree, **RUN | {"max_new_tokens": 480}, engine={"context_length": 500}, timeout=4)
    log = re.search(r"the end of (.*):$", str(caught.value), re.MULTILINE)
    deadline = time.monotonic() + 30
    while _writers(log[1]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _writers(log[1]) == []


def test_equal_runs_are_done_once_and_others_are_not(pristine_tree: Path) -> None:
    first = generate(pristine_tree, **RUN)
    assert generate(pristine_tree, **RUN).log == first.log
    longer = generate(pristine_tree, **RUN | {"max_new_tokens": 5})
    assert longer.log != first.log
    assert longer.outputs[0][:4] == first.outputs[0]


def test_sampling_may_differ_by_prompt(pristine_tree: Path) -> None:
    run = generate(
        pristine_tree,
        pair="qwen3-nano",
        prompts=["the quick brown", "def f1(x):"],
        max_new_tokens=8,
        sampling=[{"max_new_tokens": 3}, {}],
    )
    assert [len(output) for output in run.outputs] == [3, 8]


def test_a_mutation_touches_its_file_alone_and_must_match(mutated_tree: Callable[..., Path], patched_tree: Path) -> None:
    before = (patched_tree / FILE).read_bytes()
    tree = mutated_tree(FILE, "    def prepare_for_verify(", "    def prepare_for_verify_renamed(")
    assert b"prepare_for_verify_renamed" in (tree / FILE).read_bytes()
    assert (patched_tree / FILE).read_bytes() == before
    with pytest.raises(ValueError, match=r"dflash_info\.py has 0 times, expected 1"):
        mutated_tree(FILE, "no such piece", "")
