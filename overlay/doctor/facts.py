"""What the doctor knows: plain data, the same for an installed tree, a folder of wheels, a lock, and a test's made-up one.

Paths are POSIX and relative to the root that was examined.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from overlay.doctor.elf import Elf
from overlay.doctor.fatbin import Code

#: A file name of a shared object: libx.so, libx.so.13, x.cpython-311-x86_64-linux-gnu.so
LIBRARY = re.compile(r"\.so(\.\d+)*$")


@dataclass(frozen=True, slots=True)
class Library:
    """One shared object that could be read."""

    path: str
    owner: str | None  # the distribution whose RECORD lists it
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()  # as written, RPATH then RUNPATH, with $ORIGIN
    undefined: frozenset[str] = frozenset()
    exported: frozenset[str] = frozenset()
    code: tuple[Code, ...] = ()
    soname: str | None = None

    @property
    def name(self) -> str:
        """The file's name."""
        return posixpath.basename(self.path)

    @classmethod
    def of(cls, path: str, owner: str | None, elf: Elf) -> Library:
        """What the rules need of a library that was read."""
        return cls(path, owner, elf.needed, elf.rpath + elf.runpath, elf.undefined, elf.exported, elf.code, elf.soname)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a RECORD, and what is there."""

    path: str
    sha256: str | None  # as RECORD has it: URL-safe base64 without padding
    size: int | None  # bytes
    found: str = "same"  # same, missing, size (another size), hash (another hash), link (leads out of the root)


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed package, wheel or line of a lock."""

    name: str  # normalised: lower case, hyphens
    version: str
    requires: tuple[str, ...] | None = None  # Requires-Dist as written; None where the metadata isn't at hand
    record: tuple[Entry, ...] | None = None  # None where no RECORD is at hand
    outside: tuple[str, ...] = ()  # paths of RECORD outside of the root, other than an installer's scripts; not followed


@dataclass(frozen=True, slots=True)
class Damage:
    """A file or folder that could not be read, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the host."""

    name: str
    capability: int  # 120 for 12.0


@dataclass(frozen=True, slots=True)
class Tool:
    """A compiler of the CUDA toolkit, or its headers."""

    name: str  # nvcc, ptxas, cuda.h
    path: str
    version: tuple[int, int] | None
    bundled: bool = False  # comes with triton


@dataclass(frozen=True, slots=True)
class Cached:
    """One compiled file of a JIT cache."""

    path: str
    needed: tuple[str, ...] = ()
    why: str | None = None  # what is wrong with it, where it can't be used


@dataclass(frozen=True, slots=True)
class Host:
    """What the machine adds to the tree."""

    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    tools: tuple[Tool, ...] = ()
    cached: tuple[Cached, ...] = ()
    shadows: tuple[str, ...] = ()  # CUDA libraries in LD_LIBRARY_PATH, which the linker searches before RUNPATH
    fallbacks: tuple[str, ...] = ()  # CUDA libraries in the linker's cache, which it searches last
    extra_sites: tuple[str, ...] = ()  # other import roots with packages that this environment sees
    system: frozenset[str] = frozenset()  # sonames that the system's linker cache has


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the rules may look at."""

    kind: str  # tree, wheels, lock
    root: str
    python: str = "3.11"  # major.minor that markers are evaluated for
    distributions: tuple[Distribution, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)  # import name: __version__ of its version.py
    cuda: str | None = None  # torch.version.cuda
    libraries: tuple[Library, ...] = ()
    links: dict[str, str] = field(default_factory=dict)  # links to libraries inside of the root: path to target
    damage: tuple[Damage, ...] = ()
    host: Host | None = None
    maps: dict[int, str] = field(default_factory=dict)  # process id: its /proc/<pid>/maps
    known_exports: frozenset[str] = frozenset()  # of the torch that was named, where the root has none

    def version(self, name: str) -> str | None:
        """The version of a distribution, with the CUDA label that its code states and its metadata often doesn't."""
        label = self.labels.get(name)
        found = next((one.version for one in self.distributions if one.name == name), None)
        return label if label and (found is None or label.split("+")[0] == found.split("+")[0]) else found

    def names(self) -> frozenset[str]:
        """The file names under which the tree has libraries, links included."""
        return frozenset(posixpath.basename(path) for path in (*(one.path for one in self.libraries), *self.links))
