"""Which GPUs a library has code for: read from the headers of its fat binaries, without CUDA's tools.

A container is a header of 16 bytes (magic, version, header size, size of what follows) and entries, each with its kind
(1 PTX, 2 machine code) and the compute capability as ten times major plus minor. The headers don't tell `sm_90a` from
`sm_90`: code for one exact GPU counts as code for that capability.
"""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

SECTIONS = (".nv_fatbin", "__nv_relfatbin", ".nvFatBin")
_MAGIC = 0xBA55ED50
_KINDS = {1: "ptx", 2: "sass"}


class Code(NamedTuple):
    """One kind of code in a library."""

    kind: str  # ptx or sass
    capability: int  # 90 for 9.0, 120 for 12.0

    def __str__(self) -> str:
        return ("sm_" if self.kind == "sass" else "compute_") + str(self.capability)

    def runs_on(self, capability: int) -> bool:
        """Machine code runs on the same major version from its minor on, PTX on everything newer."""
        if self.kind == "ptx":
            return self.capability <= capability
        return self.capability // 10 == capability // 10 and self.capability <= capability


def codes(data: mmap.mmap | bytes, ranges: list[tuple[int, int]]) -> tuple[Code, ...]:
    """The code in the (offset, length) ranges of a file, sorted, each once. Stops at what is no container."""
    found: set[Code] = set()
    for start, length in ranges:
        position, end = start, min(start + length, len(data))
        while position + 16 <= end:
            magic, _version, header, size = struct.unpack_from("<IHHQ", data, position)
            if magic != _MAGIC:
                position += 8
                continue
            stop = min(position + header + size, end)
            found.update(_entries(data, position + header, stop))
            position = max(position + 16, (stop + 7) // 8 * 8)
    return tuple(sorted(found))


def _entries(data: mmap.mmap | bytes, position: int, stop: int) -> set[Code]:
    found = set()
    while position + 32 <= stop:
        kind, _unknown, header, size = struct.unpack_from("<HHIQ", data, position)
        (capability,) = struct.unpack_from("<I", data, position + 28)
        if kind in _KINDS and 10 <= capability < 1000:
            found.add(Code(_KINDS[kind], capability))
        position += max(header + size, 32)
    return found
