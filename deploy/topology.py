"""A host's slots from its inventory: one server, `count` of them, a named topology over its GPUs, or a list. Pure.

topology = "tp4"; gpus = [0, 1, 2, 3, 4, 5, 6, 7]     two servers, gpu0 and gpu4
count = 2                                             two servers, engine1 and engine2, on a host without GPUs
[[hosts.NAME.instances]]                              one table a server: name, tp, gpus or first-gpu, port, nccl-port
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from deploy import ports
from deploy.slot import NCCL, Slot, single

TOPOLOGIES = ("tp1", "tp2", "tp4", "tp8")
#: Flags of the server that a slot decides; tensor parallelism may be given for all slots where nothing else gives it.
TP = ("tp", "tp-size", "tensor-parallel-size")
OWN = ("port", "nccl-port", "base-gpu-id", "gpu-id-step")
KEYS = ("name", "tp", "gpus", "first-gpu", "port", "nccl-port")

#: Makes the error for a key: (key, what), or of a table of the list (key, what, its number from 0).
Wrong = Callable[..., Exception]


def slots(raw: dict[str, Any], port: int, gpus: tuple[int, ...], tp: int | None, wrong: Wrong) -> tuple[Slot, ...]:
    """The slots, whose first HTTP port is `port` where the list gives none. `tp` is the one under `[server]`, if any."""
    given = [key for key in ("topology", "count", "instances") if key in raw]
    if len(given) > 1:
        raise wrong(given[1], f"can't be given beside {given[0]}: it says the same otherwise")
    if tp is not None and given in (["topology"], ["instances"]):
        raise wrong(given[0], "gives the tensor parallelism: take `tp` out of the server's flags")
    if "topology" in raw:
        made = _named(raw["topology"], port, gpus, wrong)
    elif "count" in raw:
        if gpus:
            raise wrong("count", 'is for hosts without GPUs: say topology = "tp1", or list the instances')
        names = [f"engine{number}" for number in range(1, raw["count"] + 1)]
        made = [Slot(name, port + i, port + i + NCCL, tp or 1) for i, name in enumerate(names)]
    elif "instances" in raw:
        if gpus:
            raise wrong("gpus", "can't be given beside instances, which name their own")
        made = [_listed(table, number, port, wrong) for number, table in enumerate(raw["instances"])]
        if not made:
            raise wrong("instances", "is empty: list a server, or leave it out")
    else:
        if tp and gpus and len(gpus) != tp:
            raise wrong("gpus", f'are {len(gpus)} for one server with tp = {tp}: say topology = "tp{tp}" for several')
        made = [single(port, tp or 1, gpus)]
    for number, slot in enumerate(made):
        if slot.port > ports.HIGHEST:
            raise wrong("port", f"is too high for {len(made)} servers: {slot.name} would have {slot.port}, over {ports.HIGHEST}")
        if len(set(slot.ports)) < len(slot.ports):  # only a list gives more than the HTTP port
            what = f"is {slot.nccl_port}, where {slot.name} has its HTTP or, 10,000 above, its gRPC port"
            raise wrong("nccl-port", what, number)
        for other in made[:number]:
            if what := _shared(slot, other):
                raise wrong(*what, number) if "instances" in raw else wrong(*what)
    return tuple(made)


def _named(name: str, port: int, gpus: tuple[int, ...], wrong: Wrong) -> list[Slot]:
    if name not in TOPOLOGIES:
        raise wrong("topology", f"is {name!r}, must be one of {', '.join(TOPOLOGIES)}")
    tp = int(name[2:])
    if not gpus:
        raise wrong("topology", "needs the GPUs that it spreads over, such as gpus = [0, 1, 2, 3, 4, 5, 6, 7]")
    if len(gpus) % tp:
        raise wrong("gpus", f"are {len(gpus)}, which {name} can't share out: a multiple of {tp} is needed")
    groups = [gpus[first : first + tp] for first in range(0, len(gpus), tp)]
    return [Slot(f"gpu{group[0]}", port + i, port + i + NCCL, tp, group) for i, group in enumerate(groups)]


def _listed(table: Any, number: int, port: int, wrong: Wrong) -> Slot:
    if not isinstance(table, dict):
        raise wrong("instances", "must be tables, [[hosts.NAME.instances]]")
    for key in table:
        if key not in KEYS:
            raise wrong(key, f"unknown key; known: {', '.join(KEYS)}", number)
    name = table.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise wrong("name", f"is {name!r}, must be small letters, digits and _", number)

    def whole(key: str, otherwise: int, low: int, high: int) -> int:
        value = table.get(key, otherwise)
        if type(value) is not int or not low <= value <= high:
            raise wrong(key, f"is {value!r}, must be a number from {low} to {high}", number)
        return value

    if "gpus" in table and "first-gpu" in table:
        raise wrong("first-gpu", "can't be given beside gpus: it says the same otherwise", number)
    tp = whole("tp", 1, 1, 64)
    first = whole("first-gpu", 0, 0, 1024)
    gpus = table.get("gpus", list(range(first, first + tp)) if "first-gpu" in table else [])
    if not different(gpus) or (gpus and len(gpus) != tp):
        raise wrong("gpus", f"is {gpus!r}, must be {tp} different GPU numbers, as tp is {tp}", number)
    at = whole("port", port + number, ports.LOWEST, ports.HIGHEST)
    return Slot(name, at, whole("nccl-port", at + NCCL, ports.LOWEST, 65535), tp, tuple(gpus))


def different(gpus: Any) -> bool:
    """Whether it is a list of different GPU numbers."""
    return isinstance(gpus, list) and all(type(gpu) is int and gpu >= 0 for gpu in gpus) and len(set(gpus)) == len(gpus)


def _shared(slot: Slot, other: Slot) -> tuple[str, str] | None:
    """The key and what is wrong with it, if both can't be on one host."""
    if slot.name == other.name:
        return "name", f"is {slot.name!r} twice"
    if both := set(slot.gpus) & set(other.gpus):
        return "gpus", f"{slot.name} and {other.name} share GPU {min(both)}"
    if both := set(slot.ports) & set(other.ports):
        return "port", f"{slot.name} and {other.name} share port {min(both)} (HTTP, nccl, or gRPC 10,000 above HTTP)"
    return None
