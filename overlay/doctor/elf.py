"""Shared objects, read and never loaded: a damaged one is `Damaged` with a reason, and no byte outside of the file is used.

Only the standard library, so that the reader runs on a host as it is, and only the tables that the dynamic linker looks
at: a kernel library of one gigabyte takes a tenth of a second.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from overlay.doctor import fatbin

_DYNAMIC = 2  # PT_DYNAMIC
_LOAD = 1  # PT_LOAD
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_DYNSYM = 11  # SHT_DYNSYM
_WEAK = 2  # STB_WEAK
_LOCAL = 0  # STB_LOCAL
#: e_machine of the platforms that wheels for Linux hosts are made for.
_MACHINES = {62: "x86-64", 183: "aarch64"}
#: More symbols or tags than any real library has: a number of that size is damage.
_LIMIT = 5_000_000


class Damaged(ValueError):
    """The file can't be read as a shared object; says why in words."""


@dataclass(frozen=True, slots=True)
class Elf:
    """What the dynamic linker would see of a shared object."""

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]  # as written, with $ORIGIN
    runpath: tuple[str, ...]
    undefined: frozenset[str]  # strong symbols that another library must define
    exported: frozenset[str]
    code: tuple[fatbin.Code, ...]  # GPU code, sorted, each once


def read(path: Path) -> Elf:
    """Read one file. Raises Damaged if it is not a whole shared object, and OSError if it can't be opened."""
    # Not blocking: a pipe that is named like a library would hang the doctor.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Damaged("it is not a regular file")
        if found.st_size < 64:
            raise Damaged(f"it has {found.st_size} bytes, fewer than a library's header")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _parse(data)
            except Damaged:
                raise
            except (struct.error, ValueError, IndexError, OverflowError) as error:
                raise Damaged("it is truncated or its tables are broken") from error


def _parse(data: mmap.mmap) -> Elf:
    if data[:4] != b"\x7fELF":
        raise Damaged("it does not begin as a library does" + (" (zeros)" if not any(data[:64]) else ""))
    if data[4] != 2 or data[5] != 1:
        return _foreign("32-bit or big-endian")
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine not in _MACHINES:
        return _foreign(f"machine {machine}")
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, headers + size * index) for index in range(count)]
    sections = _sections(data)
    for kind, _flags, offset, _address, _physical, length, _memory, _align in segments:
        if kind == _LOAD and offset + length > len(data):
            raise Damaged(f"it is truncated: {len(data)} bytes, and its segments need {offset + length}")
    return _dynamic(data, segments, sections, _MACHINES[machine])


def _foreign(machine: str) -> Elf:
    return Elf(machine, None, (), (), (), frozenset(), frozenset(), ())


def _sections(data: mmap.mmap) -> list[tuple]:
    """Section headers, each followed by its name; none if the file was stripped of them."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if start == 0 or count == 0:
        return []
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * index) for index in range(count)]
    table = headers[names][4]
    return [(*header, _string(data, table + header[0], len(data))) for header in headers]


def _dynamic(data: mmap.mmap, segments: list[tuple], sections: list[tuple], machine: str) -> Elf:
    place = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    if place is None:
        raise Damaged("it has no dynamic section, so it is a program or an object file, not a library")
    tags: list[tuple[int, int]] = []
    for tag in struct.iter_unpack("<QQ", data[place[2] : place[2] + place[5] // 16 * 16]):
        if tag[0] == 0 or len(tags) > _LIMIT:
            break
        tags.append(tag)
    one = dict(tags)
    if _STRTAB not in one or _SYMTAB not in one:
        raise Damaged("its dynamic section names no symbols")
    strings = _offset(segments, one[_STRTAB])
    end = min(len(data), strings + one.get(_STRSZ, len(data)))

    def text(tag: int) -> list[str]:
        return [_string(data, strings + value, end) for name, value in tags if name == tag]

    def folders(tag: int) -> tuple[str, ...]:
        return tuple(part for entry in text(tag) for part in entry.split(":") if part)

    undefined, exported = _symbols(data, sections, _offset(segments, one[_SYMTAB]), strings, end)
    return Elf(
        machine=machine,
        soname=next(iter(text(_SONAME)), None),
        needed=tuple(text(_NEEDED)),
        rpath=folders(_RPATH),
        runpath=folders(_RUNPATH),
        undefined=undefined,
        exported=exported,
        code=fatbin.codes(data, [(s[4], s[5]) for s in sections if s[10] in fatbin.SECTIONS]),
    )


def _symbols(data: mmap.mmap, sections: list[tuple], start: int, strings: int, end: int) -> tuple[frozenset[str], frozenset[str]]:
    table = next((section for section in sections if section[1] == _DYNSYM), None)
    # Without section headers the table's end is unknown; linkers put the strings right after it.
    length = table[5] if table is not None else max(0, strings - start)
    if start + length > len(data) or length // 24 > _LIMIT:
        raise Damaged("it is truncated: its symbol table goes past its end")
    names = data[strings:end]
    undefined, exported = set(), set()
    for name, info, _other, index, _value, _size in struct.iter_unpack("<IBBHQQ", data[start : start + length // 24 * 24]):
        binding = info >> 4
        if name == 0 or binding == _LOCAL or (index == 0 and binding == _WEAK):
            continue
        if name >= len(names):
            raise Damaged("a symbol's name lies outside of its string table")
        (undefined if index == 0 else exported).add(names[name : names.index(b"\0", name)].decode(errors="replace"))
    return frozenset(undefined), frozenset(exported)


def _offset(segments: list[tuple], address: int) -> int:
    for kind, _flags, offset, start, _physical, length, _memory, _align in segments:
        if kind == _LOAD and start <= address < start + length:
            return offset + address - start
    raise Damaged("its dynamic section points outside of the file")


def _string(data: mmap.mmap, start: int, end: int) -> str:
    stop = data.find(b"\0", start, end)
    if not 0 <= start < end or stop < 0:
        raise Damaged("a name lies outside of its string table")
    return data[start:stop].decode(errors="replace")
