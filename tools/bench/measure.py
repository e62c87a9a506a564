"""Asks a server, and turns its answers into rounds: seconds, tokens, verify steps. Knows HTTP questions, not who starts servers.

Times are the server's own (`e2e_latency` of each request), so the link to a host is not in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploy.http import NoAnswer
from tools.bench.stats import spread
from tools.errors import UserError


class Server(Protocol):
    """Whoever can be asked, such as a `deploy.host.Host`."""

    def ask(self, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any: ...


@dataclass(frozen=True)
class Load:
    """What is asked: each round all prompts, `batch` at a time, so many new tokens each."""

    prompts: tuple[tuple[int, ...], ...]
    tokens: int
    batches: tuple[int, ...]
    temperatures: tuple[float, ...]
    rounds: int
    timeout: float  # seconds for one answer


@dataclass(frozen=True)
class Round:
    """All prompts once."""

    seconds: float
    tokens: int
    steps: int  # verify steps of all requests together; 0 without speculation

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def accept_length(self) -> float | None:
        """Tokens a request and verify step; None without speculation."""
        return self.tokens / self.steps if self.steps else None

    def step_ms(self, batch: int) -> float:
        """Milliseconds a step of the whole batch; without speculation a step is one token a request."""
        return self.seconds * 1e3 / ((self.steps or self.tokens) / batch)


def cells(server: Server, load: Load, tick: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Every batch size and temperature: a round that is thrown away, then the rounds; greedy cells also have the tokens.

    `tick` is called with a short text when a round begins. Raises UserError if the server gives no answer or another number of
    tokens than was asked for.
    """
    for temperature in load.temperatures:
        for batch in load.batches:
            name = f"T={temperature:g}, batch {batch}"
            rounds, outputs = [], []
            for number in range(load.rounds + 1):
                tick(f"{name}, " + (f"round {number} of {load.rounds}" if number else "warm-up"))
                done, outputs = _round(server, load, temperature, batch)
                if number:
                    rounds.append(done)
            yield cell(temperature, batch, rounds, outputs if temperature == 0 else None)


def cell(temperature: float, batch: int, rounds: Sequence[Round], outputs: list[list[int]] | None) -> dict[str, Any]:
    """A cell of the document: the rounds, and their medians with spread."""
    made: dict[str, Any] = {"temperature": temperature, "batch": batch, "rounds": [dataclasses.asdict(one) for one in rounds]}
    made["tokens_per_second"] = dataclasses.asdict(spread([one.tokens_per_second for one in rounds]))
    made["step_ms"] = dataclasses.asdict(spread([one.step_ms(batch) for one in rounds]))
    lengths = [one.accept_length for one in rounds if one.accept_length is not None]
    made["accept_length"] = dataclasses.asdict(spread(lengths)) if lengths else None
    if outputs is not None:
        made["outputs"] = outputs
    return made


def trees(server: Server, load: Load, temperatures: Sequence[float], count: int) -> list[dict[str, Any]]:
    """The trees of `count` real requests at each temperature, with the text of every token; none if the server shows none."""
    found = []
    for temperature in temperatures:
        for prompt in load.prompts[:count]:
            sampling = {**_sampling(load, temperature), "custom_params": {"ddtree_trace": True}}
            meta = ask(server, "/generate", {"input_ids": list(prompt), "sampling_params": sampling}, load.timeout)["meta_info"]
            if steps := meta.get("spec_ddtree_trace"):
                request = {"temperature": temperature, "prompt": list(prompt), "steps": steps}
                ids = {token for step in steps for token in [*step["tokens"], step["bonus"]]} | set(prompt)
                found.append({**request, "seconds": meta["e2e_latency"], "texts": _texts(server, sorted(ids), load.timeout)})
    return found


def ask(server: Server, path: str, body: dict[str, Any] | None, timeout: float) -> Any:
    """A question that must be answered."""
    try:
        return server.ask(path, body, timeout=timeout)
    except NoAnswer as error:
        raise UserError(f"the server gave no answer to the benchmark: {error}") from None


def _round(server: Server, load: Load, temperature: float, batch: int) -> tuple[Round, list[list[int]]]:
    seconds, steps, outputs = 0.0, 0, []
    for start in range(0, len(load.prompts), batch):
        prompts = [list(prompt) for prompt in load.prompts[start : start + batch]]
        sampling = _sampling(load, temperature)
        answers = ask(server, "/generate", {"input_ids": prompts, "sampling_params": sampling}, load.timeout)
        for answer in answers:
            if len(answer["output_ids"]) != load.tokens:
                raise UserError(f"the server gave {len(answer['output_ids'])} tokens where {load.tokens} were asked for")
        seconds += max(answer["meta_info"]["e2e_latency"] for answer in answers)
        steps += sum(answer["meta_info"].get("spec_verify_ct") or 0 for answer in answers)
        outputs += [answer["output_ids"] for answer in answers]
    return Round(seconds, load.tokens * len(outputs), steps), outputs


def _sampling(load: Load, temperature: float) -> dict[str, Any]:
    return {"temperature": temperature, "max_new_tokens": load.tokens, "ignore_eos": True}


def _texts(server: Server, ids: list[int], timeout: float) -> dict[str, str]:
    """Token id -> its text; nothing from a server without a tokenizer."""
    try:
        body = {"tokens": [[token] for token in ids], "skip_special_tokens": False}
        return dict(zip(map(str, ids), server.ask("/detokenize", body, timeout=timeout)["text"], strict=True))
    except NoAnswer:
        return {}
