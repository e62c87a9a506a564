"""Small ELF libraries for tests, with chosen NEEDED, RPATH, symbols and GPU code: what the linker reads, and no code.

Addresses are file offsets, so that one loaded segment covers everything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path


def library(
    path: Path,
    *,
    needed: Iterable[str] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    undefined: Iterable[str] = (),
    weak: Iterable[str] = (),
    exported: Iterable[str] = (),
    code: Iterable[tuple[str, int]] = (),
) -> Path:
    """Write one; `code` has pairs of kind (sass or ptx) and capability (90 for 9.0). Returns the path."""
    strings = bytearray(b"\0")

    def string(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return len(strings) - len(text.encode()) - 1

    tags = [(1, string(name)) for name in needed]
    tags += [(tag, string(text)) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text is not None]
    # name, binding and type, other, section (0: undefined), value, size
    symbols = [(0, 0, 0, 0, 0, 0)]
    symbols += [(string(name), 0x12, 0, 0, 0, 0) for name in undefined]
    symbols += [(string(name), 0x22, 0, 0, 0, 0) for name in weak]
    symbols += [(string(name), 0x12, 0, 1, 64, 8) for name in exported]
    table = b"".join(struct.pack("<IBBHQQ", *symbol) for symbol in symbols)
    fatbin = _fatbin(code)
    names = b"\0.dynsym\0.dynstr\0.dynamic\0.nv_fatbin\0.shstrtab\0"

    start = 64 + 2 * 56
    at = {"dynsym": start, "dynstr": start + len(table)}
    at["dynamic"] = (at["dynstr"] + len(strings) + 15) // 16 * 16
    tags += [(5, at["dynstr"]), (6, at["dynsym"]), (10, len(strings)), (11, 24), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    at["fatbin"] = at["dynamic"] + len(dynamic)
    at["names"] = at["fatbin"] + len(fatbin)
    at["sections"] = (at["names"] + len(names) + 7) // 8 * 8
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (names.index(b".dynsym"), 11, 2, at["dynsym"], at["dynsym"], len(table), 2, 1, 8, 24),
        (names.index(b".dynstr"), 3, 2, at["dynstr"], at["dynstr"], len(strings), 0, 0, 1, 0),
        (names.index(b".dynamic"), 6, 3, at["dynamic"], at["dynamic"], len(dynamic), 2, 0, 8, 16),
        (names.index(b".nv_fatbin"), 1, 2, at["fatbin"], at["fatbin"], len(fatbin), 0, 0, 8, 0),
        (names.index(b".shstrtab"), 3, 0, 0, at["names"], len(names), 0, 0, 1, 0),
    ]
    total = at["sections"] + 64 * len(sections)
    body = bytearray(total)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, at["sections"], 0, 64, 56, 2, 64, len(sections), 5)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, total, total, 4096)
    link = struct.pack("<IIQQQQQQ", 2, 4, at["dynamic"], at["dynamic"], at["dynamic"], len(dynamic), len(dynamic), 8)
    pieces = {0: head + load + link, at["dynsym"]: table, at["dynstr"]: strings, at["dynamic"]: dynamic}
    pieces |= {at["fatbin"]: fatbin, at["names"]: names}
    pieces[at["sections"]] = b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)
    for offset, piece in pieces.items():
        body[offset : offset + len(piece)] = piece
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def _fatbin(code: Iterable[tuple[str, int]]) -> bytes:
    entries = b""
    for kind, capability in code:
        payload = b"\xaa" * 24
        number = {"ptx": 1, "sass": 2}[kind]
        entries += struct.pack("<HHIQIIHHI32x", number, 0x101, 64, len(payload), 0, 0, 0, 1, capability) + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries if entries else b""
