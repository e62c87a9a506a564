"""Whether a host's GPUs can carry what is wanted of them, and what could be done with those that are left. Pure."""

from __future__ import annotations

from deploy.gpus import Gpu
from deploy.inventory import Entry
from deploy.slot import ENGINE, Slot
from tools.cli import UserError

#: MiB that others may use without being named.
NOISE = 16


def require(entry: Entry, gpus: tuple[Gpu, ...]) -> None:
    """A `UserError` if one is missing or dead, with the lines of the inventory that do without it."""
    dead = {gpu.index: gpu.fault for gpu in gpus if gpu.fault}
    if not dead:
        return
    faults = sorted(set(filter(None, dead.values())))
    names = f"GPU{'s' if len(dead) > 1 else ''} {', '.join(map(str, dead))}"
    if len(dead) == len(gpus) and len(faults) == 1:
        raise UserError(f"no GPU of {entry.name} can be used: {faults[0]}, and the profile {entry.profile} needs CUDA")
    verb = "do not answer" if len(dead) > 1 else "does not answer"
    raise UserError(f"{names} of {entry.name} {verb}: {'; '.join(faults)}; {without(entry, set(dead))}")


def without(entry: Entry, dead: set[int]) -> str:
    """How to go on without these GPUs, in words for the inventory."""
    where = f"under [hosts.{entry.name}] in hosts.local.toml"
    sizes = {slot.tp for slot in entry.slots}
    if not any(slot.gpus for slot in entry.slots):
        left = [gpu for gpu in entry.gpus if gpu not in dead]
        sizes, slots = {len(entry.gpus)}, (Slot("all", 0, 0, len(entry.gpus), entry.gpus),)
    else:
        slots = entry.slots
        left = [gpu for slot in slots for gpu in slot.gpus if gpu not in dead]
    if not left:
        return "none is left"
    listed = any(slot.name not in (ENGINE, "all", f"gpu{slot.gpus[0]}") for slot in slots if slot.gpus)
    if listed or len(sizes) > 1:
        out = " and ".join(slot.name for slot in slots if dead & set(slot.gpus))
        return f"take the instance {out} out of the list {where} to go on with the others"
    every = [gpu for slot in slots for gpu in slot.gpus]
    size = 1 << (sizes.pop().bit_length() - 1)
    while not (whole := [block for block in _blocks(every, size) if not dead & set(block)]):
        size //= 2
    used = [gpu for block in whole for gpu in block]
    spare = [gpu for gpu in left if gpu not in used]
    rest = f", which leaves {', '.join(map(str, spare))} spare" if spare else ""
    flag = ", take tp out of its server's flags," if slots[0].name in (ENGINE, "all") and entry.slots[0].tp > 1 else ""
    return f'set topology = "tp{size}" and gpus = {used} {where}{flag} to go on without it{rest}'


def warnings(gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """What a person should know, and what does not stand in the way."""
    said = []
    for gpu in gpus:
        for process in gpu.processes:
            if not process.ours and (process.used is None or process.used > NOISE):
                size = "memory" if process.used is None else f"{process.used} MiB"
                said.append(f"GPU {gpu.index}: process {process.pid} ({process.name}), which is no server of ours, holds {size}")
        if gpu.uncorrected:
            said.append(f"GPU {gpu.index}: {gpu.uncorrected} uncorrected memory errors since its driver was loaded")
        if gpu.remapping:
            said.append(
                f"GPU {gpu.index}: remapping of memory rows {gpu.remapping}: reset it, or have it replaced if that recurs"
            )
        if gpu.xids:
            said.append(f"GPU {gpu.index}: {len(gpu.xids)} errors in the kernel's log since the last release: {gpu.xids[-1]}")
    return tuple(said)


def _blocks(gpus: list[int], size: int) -> list[list[int]]:
    """Neighbours, which are close to each other."""
    return [gpus[first : first + size] for first in range(0, len(gpus) - size + 1, size)]
