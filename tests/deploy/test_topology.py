"""Slots from the inventory: what each way of saying it gives, and what every mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import inventory
from deploy.slot import Slot
from tools.cli import UserError

HOST = """\
[hosts.ct200]
transport = "ssh"
profile = "cu130"
pair = "qwen3-tiny"
root = "/opt/sglang"
port = 30000
"""
EIGHT = "gpus = [0, 1, 2, 3, 4, 5, 6, 7]\n"
TABLE = "[[hosts.ct200.instances]]\n"


def load(folder: Path, text: str) -> tuple[Slot, ...]:
    (folder / "hosts.toml").write_text(HOST + text)
    return inventory.load("ct200", file=folder / "hosts.toml").slots


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("", [Slot("engine", 30000, 31000)]),
        ("gpus = [2, 3]\n[hosts.ct200.server]\ntp = 2\n", [Slot("engine", 30000, 31000, 2, (2, 3))]),
        ('topology = "tp8"\n' + EIGHT, [Slot("gpu0", 30000, 31000, 8, tuple(range(8)))]),
        (
            'topology = "tp4"\n' + EIGHT,
            [Slot("gpu0", 30000, 31000, 4, (0, 1, 2, 3)), Slot("gpu4", 30001, 31001, 4, (4, 5, 6, 7))],
        ),
        ('topology = "tp1"\n' + EIGHT, [Slot(f"gpu{i}", 30000 + i, 31000 + i, 1, (i,)) for i in range(8)]),
        ("count = 2\n[hosts.ct200.server]\ntp-size = 3\n", [Slot(f"engine{i}", 29999 + i, 30999 + i, 3) for i in (1, 2)]),
        (
            TABLE
            + 'name = "big"\ntp = 2\nfirst-gpu = 4\n'
            + TABLE
            + 'name = "small"\ngpus = [1]\nport = 32000\nnccl-port = 5000\n',
            [Slot("big", 30000, 31000, 2, (4, 5)), Slot("small", 32000, 5000, 1, (1,))],
        ),
    ],
)
def test_slots(tmp_path: Path, text: str, slots: list[Slot]) -> None:
    assert load(tmp_path, text) == tuple(slots)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('topology = "tp3"\n' + EIGHT, ":7: hosts.ct200.topology: is 'tp3', must be one of tp1, tp2, tp4, tp8"),
        ('topology = "tp2"\n', ":7: hosts.ct200.topology: needs the GPUs that it spreads over"),
        ('topology = "tp2"\ngpus = [0, 1, 2]\n', ":8: hosts.ct200.gpus: are 3, which tp2 can't share out"),
        ('topology = "tp1"\ncount = 2\n' + EIGHT, ":8: hosts.ct200.count: can't be given beside topology"),
        ("count = 0\n", ":7: hosts.ct200.count: is 0, must be from 1 to 64"),
        ("count = 2\ngpus = [0]\n", ":7: hosts.ct200.count: is for hosts without GPUs"),
        ("gpus = [0, 1, 0]\n", ":7: hosts.ct200.gpus: must be different GPU numbers"),
        (
            'topology = "tp1"\n' + EIGHT + "[hosts.ct200.server]\ntp = 2\n",
            ":7: hosts.ct200.topology: gives the tensor parallelism",
        ),
        (
            "gpus = [0, 1, 2, 3]\n[hosts.ct200.server]\ntp = 2\n",
            ":7: hosts.ct200.gpus: are 4 for one server with tp = 2: say topo",
        ),
        ("[hosts.ct200.server]\ntp = 2\ntp-size = 4\n", ":9: hosts.ct200.server.tp-size: is 4, must be one number"),
        ("[hosts.ct200.server]\nnccl-port = 5\n", ":8: hosts.ct200.server.nccl-port: is not a flag to set here"),
        ("instances = []\n", ":7: hosts.ct200.instances: is empty"),
        ("instances = [1]\n", ":7: hosts.ct200.instances: must be tables, [[hosts.NAME.instances]]"),
        (TABLE + "tp = 1\n", ":7: hosts.ct200.instances[0].name: is None, must be small letters"),
        (
            TABLE + 'name = "a"\n\n' + TABLE + 'name = "b"\ntpp = 1\n',
            ":12: hosts.ct200.instances[1].tpp: unknown key; known: name",
        ),
        (TABLE + 'name = "a"\n' + TABLE + 'name = "a"\n', ":10: hosts.ct200.instances[1].name: is 'a' twice"),
        (
            TABLE + 'name = "a"\ntp = 2\ngpus = [1]\n',
            ":10: hosts.ct200.instances[0].gpus: is [1], must be 2 different GPU numbers",
        ),
        (
            TABLE + 'name = "a"\ngpus = [1]\nfirst-gpu = 1\n',
            ":10: hosts.ct200.instances[0].first-gpu: can't be given beside gpus",
        ),
        (
            TABLE + 'name = "a"\nfirst-gpu = 1\n' + TABLE + 'name = "b"\ngpus = [1]\n',
            ":12: hosts.ct200.instances[1].gpus: b and a share GPU 1",
        ),
        (
            TABLE + 'name = "a"\n' + TABLE + 'name = "b"\nport = 40000\n',
            ":11: hosts.ct200.instances[1].port: b and a share port 40000 (HTTP, nccl, or gRPC",
        ),
        (
            TABLE + 'name = "a"\nport = 30000\nnccl-port = 40000\n',
            ":10: hosts.ct200.instances[0].nccl-port: is 40000, where a has its HTTP or, 10,000 above, its gRPC port",
        ),
        (TABLE + 'name = "a"\nport = 80\n', ":9: hosts.ct200.instances[0].port: is 80, must be a number from 1024 to"),
        (EIGHT + TABLE + 'name = "a"\n', ":7: hosts.ct200.gpus: can't be given beside instances"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert "hosts.toml" + said in str(caught.value)
    assert caught.value.code == 2


def test_a_private_file_changes_the_topology(tmp_path: Path) -> None:
    (tmp_path / "hosts.local.toml").write_text('[hosts.ct200]\ntopology = "tp2"\n')
    assert [slot.gpus for slot in load(tmp_path, EIGHT + 'topology = "tp8"\n')] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    (tmp_path / "hosts.local.toml").write_text("[[hosts.ct200.instances]]\nname = 'a'\nxx = 1\n")
    with pytest.raises(UserError, match=r"hosts\.local\.toml:3: hosts\.ct200\.instances\[0\]\.xx: unknown key"):
        load(tmp_path, "")


def test_no_two_slots_of_any_topology_share_a_port_or_a_gpu(tmp_path: Path) -> None:
    for name in ("tp1", "tp2", "tp4", "tp8"):
        slots = load(tmp_path, f'topology = "{name}"\n' + EIGHT)
        for number, slot in enumerate(slots):
            assert not any(slot.clashes(other) for other in slots[:number])
        assert sorted(gpu for slot in slots for gpu in slot.gpus) == list(range(8))
