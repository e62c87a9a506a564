"""Real tensor parallel groups for check scripts: gloo processes, forked from one that has imported SGLang."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path

from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel


def join(rank: int, size: int, meeting: Path) -> None:
    """Make this process one rank of `size`; they meet at the file `meeting`."""
    init_distributed_environment(size, rank, f"file://{meeting}", rank, backend="gloo", timeout=60)
    initialize_model_parallel(tensor_model_parallel_size=size, backend="gloo")


def on_every_rank(size: int, work: Callable, *arguments: object) -> list:
    """What `work(rank, *arguments)` returns in each of `size` processes. Raises RuntimeError if one of them fails."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(rank, size, Path(folder) / "meeting", answers, work, arguments), daemon=True)
            for rank in range(size)
        ]
        for process in ranks:
            process.start()
        found = dict(answers.get(timeout=120) for _ in ranks)
        for process in ranks:
            process.join()
    failed = {rank: answer for rank, answer in found.items() if isinstance(answer, str)}
    if failed:
        raise RuntimeError(f"ranks failed: {failed}")
    return [found[rank] for rank in range(size)]


def _rank(rank: int, size: int, meeting: Path, answers, work: Callable, arguments: tuple) -> None:
    try:
        join(rank, size, meeting)
        answers.put((rank, work(rank, *arguments)))
    except Exception as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
