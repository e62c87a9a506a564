"""The semantic gate, as a function of answers."""

from __future__ import annotations

import pytest

from deploy import semantic
from deploy.inventory import Limits
from deploy.pairs import Probes

PROBES = Probes("t", 4, ((1,), (2,)), ((10, 11, 12, 13), (20, 21, 22, 23)))
LIMITS = Limits(accept_min=1.0, accept_max=4.0)


def answers(*rows: tuple[int, ...], steps: int | None = 2) -> list[dict]:
    return [{"output_ids": list(row), "meta_info": {"completion_tokens": len(row), "spec_verify_ct": steps}} for row in rows]


def test_equal_tokens_in_fewer_steps_pass() -> None:
    judged = semantic.judge(PROBES, answers(*PROBES.outputs), LIMITS)
    assert (judged.finding, judged.equal, judged.accept_length) == (None, 2, 2.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answers((10, 11, 12, 13), (20, 21, 99, 23)), "1 of 2 probes differ .* probe 2, whose token 3 is 99 instead of 22"),
        (answers((10, 11, 12), (20, 21, 22, 23)), "probe 1, whose token 4 is no token instead of 13"),
        (answers((10, 11, 12, 13, 14), (20, 21, 22, 23)), "probe 1, whose token 5 is 14 instead of no token"),
        (answers(*PROBES.outputs, steps=4), "accept length 1.00 is out of its band"),
        (answers(*PROBES.outputs, steps=0), "does not speculate"),
        (answers(*PROBES.outputs, steps=None), "does not speculate"),
    ],
)
def test_a_difference_is_named(given: list[dict], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(semantic.judge(PROBES, given, LIMITS).finding)


def test_too_good_is_not_believed() -> None:
    finding = semantic.judge(PROBES, answers(*PROBES.outputs, steps=1), Limits(accept_max=3.0)).finding
    assert finding and "accept length 4.00" in finding


def test_a_missing_answer_is_no_pass() -> None:
    with pytest.raises(ValueError):
        semantic.judge(PROBES, answers(PROBES.outputs[0]), LIMITS)


def test_too_slow() -> None:
    assert semantic.too_slow(1.0, None) is None and semantic.too_slow(50.0, 50.0) is None
    assert semantic.too_slow(49.9, 50.0) == "49.9 tokens/s, where the release before and its speed-floor ask for at least 50.0"
