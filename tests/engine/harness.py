"""Real SGLang engines for tests, each in processes of its own that end with it, started in about four seconds.

    run = generate(tree, pair="qwen3-tiny", prompts=prompts("qwen3-tiny")[:16], max_new_tokens=128,
                   engine={"speculative_algorithm": "DFLASH"})
    assert run.outputs == plain.outputs and run.verify_steps == 618

A run that was done before in the session, with equal arguments, is not done again. An engine that fails or takes too
long raises EngineFailure with the end of its log.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import overlay.site
from overlay import engine as cpu
from tools.paths import REPO

Prompt = str | list[int]
_DRIVER = Path(__file__).with_name("driver.py")
_PAIRS = (REPO / "deploy" / "pairs", REPO / "tests" / "fixtures" / "pairs")
_LOG_LINES = 60
#: How long the driver may take to import what SGLang stands on (s).
_PRELOAD = 300.0


class EngineFailure(AssertionError):
    """An engine did not start, died, or was killed because it took too long."""


@dataclass(frozen=True, slots=True)
class Run:
    """What an engine answered, prompt by prompt."""

    outputs: list[list[int]]
    text: list[str]
    meta: list[dict]  # SGLang's meta_info
    pieces: list[list[str]]  # if streamed, the text after each piece of output
    log: Path

    @property
    def verify_steps(self) -> int:
        """Verify steps of all requests together; a step that verifies a batch counts once for each request in it."""
        return sum(meta["spec_verify_ct"] for meta in self.meta)


def pair(name: str) -> Path:
    """The folder of a model pair, with `target/` and `drafter/`."""
    for place in _PAIRS:
        if (place / name).is_dir():
            return place / name
    raise ValueError(f"there is no model pair {name!r} in {' or '.join(map(str, _PAIRS))}")


def prompts(name: str) -> list[list[int]]:
    """The prompts that come with a pair, as tokens."""
    return json.loads((pair(name) / "prompts.json").read_text())


def generate(
    tree: Path,
    *,
    pair: str,
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    engine: Mapping[str, object] | None = None,
    sampling: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    request: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    calls: int = 1,
    every: int = 0,
    abort_after: int = 0,
    timeout: float = 600,
) -> Run:
    """Answers of an engine from the import root `tree` to all `prompts` (texts or token lists) in one call.

    Greedy, and past any end-of-sequence token, unless `sampling` says otherwise, for all or one for each prompt.
    `engine` holds arguments of `sglang.Engine` beside the CPU engine's own; the drafter's path is filled in where
    it names a speculative algorithm. `request` holds more arguments of `Engine.generate`. `env` is added to the
    environment; `timeout` is in seconds.
    With `calls` the prompts are asked so many times, one call after the other, and all answers returned. With `every`
    the requests of a call are streamed and start one by one, each after so many more pieces of output of those before.
    With `abort_after` they are streamed and every third one, from the first on, is aborted after so many pieces.
    Raises EngineFailure, also if the engine's own check of its memory pools finds a leak.
    """
    models, more = _pair_folder(pair), dict(engine or {})
    drafter = models / "drafter" if more.get("speculative_algorithm") else None
    each = [sampling or {}] if sampling is None or isinstance(sampling, Mapping) else sampling
    common = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
    settings = [common | dict(one) for one in each]
    arguments = {
        "tree": str(tree),
        "server_args": cpu.server_args(models / "target", drafter, **({"log_level": "warning"} | more)),
        "prompts": list(prompts),
        "sampling": settings if sampling is not None and not isinstance(sampling, Mapping) else settings[0],
        "request": dict(request or {}),
        "calls": calls,
        "every": every,
        "abort_after": abort_after,
    }
    log, answers = _engines.run("generate", arguments, dict(env or {}), timeout)
    return Run(
        outputs=[answer["output_ids"] for answer in answers],
        text=[answer["text"] for answer in answers],
        meta=[answer["meta"] for answer in answers],
        pieces=[answer["pieces"] or [] for answer in answers],
        log=log,
    )


def reference(*, pair: str, prompts: Sequence[Prompt], max_new_tokens: int, timeout: float = 600) -> list[list[int]]:
    """Greedy continuations by Hugging Face transformers, in a process that never imports SGLang."""
    model = _pair_folder(pair) / "target"
    arguments = {"model": str(model), "prompts": list(prompts), "max_new_tokens": max_new_tokens}
    return _engines.run("reference", arguments, {}, timeout)[1]


def script(tree: Path, path: Path, wanted: dict, timeout: float) -> dict:
    """What a Python script over the import root `tree` prints on its last line, as JSON; `wanted` is its standard input."""
    arguments = {"tree": str(tree), "path": str(path), "wanted": wanted}
    return _engines.run("script", arguments, {}, timeout)[1]


_pair_folder = pair  # `pair` is an argument's name above


@dataclass
class _Engines:
    """One driver, results by arguments, and a folder of job files and logs."""

    _folder: Path | None = None
    _driver: _Driver | None = None
    _done: dict[str, tuple[Path, Any]] = field(default_factory=dict)
    _numbers: itertools.count = field(default_factory=itertools.count)

    def run(self, kind: str, arguments: dict, env: dict[str, str], timeout: float) -> tuple[Path, Any]:
        key = json.dumps([kind, arguments, env], sort_keys=True)
        if key not in self._done:
            self._done[key] = self._fresh(kind, arguments, env, timeout)
        return self._done[key]

    def _fresh(self, kind: str, arguments: dict, env: dict[str, str], timeout: float) -> tuple[Path, Any]:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sglang-engine-tests-"))
        name = self._folder / f"{next(self._numbers):03d}-{kind}"
        job, log, out = (name.with_suffix(suffix) for suffix in (".json", ".log", ".out"))
        job.write_text(json.dumps({"kind": kind, "arguments": arguments, "log": str(log), "out": str(out)}))
        if env:
            # Some variables are read when a module is first imported: another environment needs another driver.
            with contextlib.closing(_Driver(env)) as driver:
                trouble = driver.do(job, timeout)
        else:
            self._driver = self._driver or _Driver({})
            trouble = self._driver.do(job, timeout)
        if trouble or not out.is_file():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:]) if log.is_file() else ""
            who = "script" if kind == "script" else "engine"
            raise EngineFailure(f"the {who} {trouble or 'left no result'}; the end of {log}:\n{tail}")
        return log, json.loads(out.read_text())

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()


class _Driver:
    """A running `driver.py`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        site = overlay.site.build()
        self._process = subprocess.Popen(
            [site.python, _DRIVER],
            env=cpu.environment(site.root) | dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def do(self, job: Path, timeout: float) -> str | None:
        """Run a job; None if it ended well, else what happened to it, in words."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{job}\n")
            self._process.stdin.flush()
            child = int(self._line(_PRELOAD))
        except (BrokenPipeError, queue.Empty, ValueError):
            return "'s driver died or did not get ready"
        try:
            status = int(self._line(timeout))
            trouble = f"ended with exit status {status}" if status else None
        except queue.Empty:
            trouble = f"was killed after {timeout:.0f} s"
        except ValueError:
            trouble = "took its driver with it"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if trouble and trouble.startswith("was killed"):
            self._line(10)
        return trouble

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _line(self, timeout: float) -> str:
        return self._lines.get(timeout=timeout)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")  # the end, which is no number


_engines = _Engines()
atexit.register(_engines.close)
