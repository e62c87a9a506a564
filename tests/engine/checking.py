"""Runs a script of `checks/` in the engine's interpreter, over a tree: JSON in, JSON out.

The scripts import SGLang and torch, which this environment doesn't have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overlay import engine as cpu
from tests.engine import harness
from tests.engine.test_baseline import TEXTS

#: Arguments of `sglang.Engine` and the environment with which seeds count, on a tree of the fixture `seeded_tree`.
SEEDED = {"enable_deterministic_inference": True, "sampling_backend": "pytorch"}
SEEDED_ENV = {"TORCHDYNAMO_DISABLE": "1"}
#: Sampled requests of `generate`, two seeds to a prompt.
SEEDS: dict[str, Any] = {
    "pair": "qwen3-nano",
    "prompts": [text for text in TEXTS[:4] for _ in range(2)],
    "max_new_tokens": 16,
    "sampling": [{"temperature": 1.5, "sampling_seed": seed} for seed in range(8)],
    "env": SEEDED_ENV,
}

_CHECKS = Path(__file__).with_name("checks")


def check(tree: Path, name: str, *, timeout: float = 900, **wanted: object) -> dict:
    """What `checks/<name>.py` says of the SGLang in `tree`; `wanted` is its input, `timeout` is in seconds.

    Raises AssertionError with the end of its output if it fails.
    """
    return harness.script(tree, _CHECKS / f"{name}.py", dict(wanted), timeout)


def refusals(tree: Path, settings: Sequence[Mapping[str, object]]) -> list[str | None]:
    """What DDTREE says at start to each of the settings; None where it starts."""
    models = harness.pair("qwen3-tiny")
    base = cpu.server_args(models / "target", models / "drafter", speculative_algorithm="DDTREE")
    return check(tree, "refusals", base=base, settings=list(settings))


def assert_refused(tree: Path, settings: Sequence[tuple[Mapping[str, object], str | None]]) -> None:
    """Each setting is refused in one sentence that has the text beside it, or starts where that is None."""
    answers = refusals(tree, [setting for setting, _ in settings])
    for (setting, named), answer in zip(settings, answers, strict=True):
        if named is None:
            assert answer is None, setting
        else:
            assert answer is not None and named in answer and "\n" not in answer, (setting, answer)
