"""The semantic gate: with speculation, a server says token for token what its target says alone, in fewer steps.

Pure: the server's answers go in, a finding comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deploy.inventory import Limits
from deploy.pairs import Probes


@dataclass(frozen=True)
class Judgement:
    """What the probes showed. `finding` is None if all is well."""

    finding: str | None
    equal: int  # probes whose tokens are the recorded ones
    accept_length: float | None  # tokens a verify step, over all probes


def question(probes: Probes) -> dict[str, Any]:
    """The one request that asks all probes, greedily."""
    return {
        "input_ids": [list(tokens) for tokens in probes.inputs],
        "sampling_params": {"temperature": 0, "max_new_tokens": probes.new_tokens, "ignore_eos": True},
    }


def judge(probes: Probes, answers: list[dict[str, Any]], limits: Limits) -> Judgement:
    """Compare the answers with the recorded tokens, and the accept length with its band."""
    got = [tuple(answer["output_ids"]) for answer in answers]
    accept = accept_length(answers)
    odd = [number for number, (want, have) in enumerate(zip(probes.outputs, got, strict=True)) if want != have]
    equal = len(got) - len(odd)
    finding = None
    if odd:
        finding = f"{len(odd)} of {len(got)} probes differ from the target alone; {_difference(odd[0], probes, got)}"
    elif accept is None:
        finding = "the server reports no verify steps: it does not speculate"
    elif not limits.accept_min < accept <= limits.accept_max:
        band = f"above {limits.accept_min:g} and at most {limits.accept_max:g}"
        finding = f"accept length {accept:.2f} is out of its band ({band}): drafts are not taken as they should be"
    return Judgement(finding, equal, accept)


def too_slow(speed: float, floor: float | None) -> str | None:
    """What is wrong with that many tokens/s, if anything."""
    if floor is None or speed >= floor:
        return None
    return f"{speed:.1f} tokens/s, where the release before and its speed-floor ask for at least {floor:.1f}"


def accept_length(answers: list[dict[str, Any]]) -> float | None:
    """Tokens a verify step over all answers; None if there was no verify step."""
    steps = sum(answer["meta_info"].get("spec_verify_ct") or 0 for answer in answers)
    return sum(answer["meta_info"]["completion_tokens"] for answer in answers) / steps if steps else None


def _difference(number: int, probes: Probes, got: list[tuple[int, ...]]) -> str:
    want, have = probes.outputs[number], got[number]
    at = next((i for i, (a, b) in enumerate(zip(want, have, strict=False)) if a != b), min(len(want), len(have)))
    here, there = (str(tokens[at]) if at < len(tokens) else "no token" for tokens in (have, want))
    return f"the first is probe {number + 1}, whose token {at + 1} is {here} instead of {there}"
