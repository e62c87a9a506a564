"""Waits until the memory of a server that ended is free again: the driver takes seconds, and who starts too early plans for the
smaller rest. Bounded, and by nvidia-smi alone; a host without it has nothing to wait for. Standard library only.
"""

from __future__ import annotations

import time

from deploy import gpus

#: Used MiB that an idle GPU may have, and seconds: between two looks, of no change that count as the end, in all.
IDLE, PAUSE, STILL, LONGEST = 1024, 0.5, 5.0, 60.0


def wait(wanted: tuple[int, ...]) -> None:
    """Wait until the GPUs are idle, or what is used no longer changes: that is another's."""
    begin = since = time.monotonic()
    last = None
    while wanted and (now := time.monotonic()) - begin < LONGEST:
        used = [_used(gpu) for gpu in wanted]
        if all(one is None or one <= IDLE for one in used):
            return
        if used != last:
            since, last = now, used
        elif now - since > STILL:
            return
        time.sleep(PAUSE)


def _used(gpu: int) -> int | None:
    """MiB in use on one GPU, asked alone: a dead one spoils a question about all. None: not known."""
    try:
        return int(gpus.query(gpu, "gpu", "memory.used")[0][0])
    except (gpus.NoAnswer, LookupError, ValueError):
        return None
