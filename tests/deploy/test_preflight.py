"""What is proposed where GPUs are dead, and what is only said. Plain data in, sentences out."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import gpus, preflight
from deploy.gpus import Gpu, Process
from deploy.inventory import Entry
from deploy.slot import Slot, single
from tests.deploy import world
from tools.cli import UserError

GO_ON = "under [hosts.sandbox] in hosts.local.toml to go on without it"
#: A topology gives the tensor parallelism, so the inventory refuses both.
FLAG = ", take tp out of its server's flags, to go"


def spread(tp: int, count: int = 8) -> tuple[Slot, ...]:
    """A named topology over so many GPUs."""
    return tuple(
        Slot(f"gpu{first}", 30000 + first, 31000 + first, tp, tuple(range(first, first + tp))) for first in range(0, count, tp)
    )


def entry(*slots: Slot, profile: str = "cu130") -> Entry:
    return world.make_entry(Path("/opt/sglang"), slots=slots, profile=profile)


@pytest.mark.parametrize(
    ("slots", "dead", "said"),
    [
        (spread(8), {3}, f'set topology = "tp4" and gpus = [4, 5, 6, 7] {GO_ON}, which leaves 0, 1, 2 spare'),
        (spread(8), {3, 4}, 'set topology = "tp2" and gpus = [0, 1, 6, 7] '),
        (spread(4), {0}, 'set topology = "tp4" and gpus = [4, 5, 6, 7] '),
        (spread(4), {0, 7}, 'set topology = "tp2" and gpus = [2, 3, 4, 5] '),
        (spread(1), {3}, f'set topology = "tp1" and gpus = [0, 1, 2, 4, 5, 6, 7] {GO_ON}'),
        ((single(30000, 2, (0, 1)),), {1}, f'set topology = "tp1" and gpus = [0] {GO_ON.replace(" to go", FLAG)}'),
        ((single(30000, 2),), {1}, f'set topology = "tp1" and gpus = [0] {GO_ON.replace(" to go", FLAG)}'),
        ((Slot("a", 1, 2, 1, (0,)), Slot("b", 3, 4, 1, (1,))), {1}, "take the instance b out of the list under "),
        (spread(1, 2), {0, 1}, "none is left"),
        ((Slot("a", 1, 2, 2, (0, 1)), Slot("b", 3, 4, 1, (2,))), {1}, "take the instance a out of the list under "),
    ],
)  # fmt: skip
def test_what_is_left(slots: tuple[Slot, ...], dead: set[int], said: str) -> None:
    assert preflight.without(entry(*slots), dead).startswith(said)


def test_dead_or_missing() -> None:
    wanted = entry(*spread(1))
    assert wanted.gpus == tuple(range(8)) and entry(*spread(1), profile="cpu").gpus == ()
    preflight.require(wanted, tuple(map(Gpu, wanted.gpus)))
    found = tuple(Gpu(index, fault="it fell off" if index in (2, 5) else None) for index in wanted.gpus)
    with pytest.raises(UserError, match="GPUs 2, 5 of sandbox do not answer: it fell off; set topology") as refused:
        preflight.require(wanted, found)
    assert refused.value.code == 1


def test_what_is_only_said() -> None:
    ours, theirs = Process(1, "python", 90000, ours=True), Process(2, "jupyter", 700)
    said = preflight.warnings((Gpu(0, processes=(ours,)), Gpu(1, processes=(ours, theirs)), Gpu(2, uncorrected=0)))
    assert said == ("GPU 1: process 2 (jupyter), which is no server of ours, holds 700 MiB",)


def test_a_command_that_can_not_be_waited_for() -> None:
    """As one whose process hangs in the driver: its output stays open after the kill."""
    with pytest.raises(gpus.NoAnswer, match="sh said nothing within 0 s"):
        gpus.ask("sh", "-c", "sleep 60 & wait", seconds=0.3)
