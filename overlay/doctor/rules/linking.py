"""R2 and R3: what the dynamic linker looks for when the service loads a library is there, and of one CUDA major.

A library without RPATH, such as every one of sglang-kernel's, finds CUDA only because torch was loaded first, so what
torch's root has under nvidia/ and torch/lib counts as found.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator

from overlay.doctor import cuda
from overlay.doctor.facts import Facts, Library
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

#: What every Linux host with an NVIDIA driver and a Python has.
_SYSTEM = re.compile(
    r"(libc|libm|libdl|libpthread|librt|libutil|libresolv|libnsl|libcrypt|libgcc_s|libstdc\+\+|libgomp|libatomic|libz|libnuma|libmvec"
    r"|libcuda|libnvidia-ml|libnvcuvid|libpython3[\d.]*|ld-linux[\w-]*)\.so(\.\d+)*$"
)
_TORCH = re.compile(r"lib(torch\w*|c10\w*|caffe2\w*|shm)\.so$")
#: Folders whose libraries are in the process, or on a library's path, once torch is imported.
_LOADED_FIRST = re.compile(r"(nvidia/.*lib|torch/lib)$")


def majors(facts: Facts) -> Iterator[Finding]:
    """R2: no library asks for the CUDA runtime of another major than torch's."""
    built = common.torch_cuda(facts)
    if built is None:
        return
    for owner, libraries in common.by_owner(facts.libraries).items():
        # The toolkit's packages of another major are R13's; what a package brings along for itself is its own.
        if (owner or "").startswith("nvidia-"):
            continue
        private = {one.name for one in libraries}
        wrong = [
            (one, name)
            for one in libraries
            for name in one.needed
            if cuda.major(name) not in (None, built[0]) and name not in private
        ]
        if not wrong:
            continue
        faulty = [one for one, _ in wrong]
        wrong = [(one, name) for one, name in wrong if not common.spared(one, faulty, libraries)]
        if not wrong:
            continue
        names = list(dict.fromkeys(name for _, name in wrong))
        yield Finding(
            "R2",
            common.worst(common.weight(facts, one.path) for one, _ in wrong),
            f"{_of(facts, owner)} needs CUDA {cuda.major(names[0])}, and {common.torch_name(facts)} is built for {built[0]}",
            tuple([Evidence(f"needs {name}", one.path, owner=owner) for one, name in wrong]),
            _cannot_open(names),
            common.mend(facts, owner),
        )


def closure(facts: Facts) -> Iterator[Finding]:
    """R3: every library that another one needs is found by its path, by torch's, or on the system."""
    built = common.torch_cuda(facts)
    folders: dict[str, set[str]] = defaultdict(set)
    for path in (*(one.path for one in facts.libraries), *facts.links):
        folders[posixpath.dirname(path)].add(posixpath.basename(path))
    first = set().union(*(names for folder, names in folders.items() if _LOADED_FIRST.search(folder)))
    for owner, libraries in common.by_owner(facts.libraries).items():
        own = {one.name for one in libraries} | {one.soname for one in libraries}
        missing: dict[Severity, list[tuple[Library, str]]] = defaultdict(list)
        for one in libraries:
            for name in one.needed:
                if name in own or name in first or _found(facts, one, name, folders) or _judged_elsewhere(name, built):
                    continue
                severity = _weight(facts, one, name)
                if severity is not None:
                    missing[severity].append((one, name))
        for severity, found in missing.items():
            yield _unresolved(facts, owner, severity, found, built)


def _found(facts: Facts, one: Library, name: str, folders: dict[str, set[str]]) -> bool:
    here = posixpath.dirname(one.path)
    for entry in one.rpath:
        folder = entry.replace("${ORIGIN}", "$ORIGIN")
        if not folder.startswith("$ORIGIN"):
            continue
        place = posixpath.normpath(posixpath.join(here, folder.removeprefix("$ORIGIN").lstrip("/")))
        if name in folders.get("" if place == "." else place, ()):
            return True
    return bool(_SYSTEM.match(name)) or bool(facts.host and name in facts.host.system)


def _judged_elsewhere(name: str, built: tuple[int, int] | None) -> bool:
    proved = cuda.major(name)
    return built is not None and proved is not None and proved != built[0]


def _weight(facts: Facts, one: Library, name: str) -> Severity | None:
    """How bad a missing file is; None where the examined folder is not meant to hold it."""
    if (_TORCH.match(name) or cuda.is_cuda(name)) and not _has_torch(facts):
        return None
    if cuda.is_cuda(name) or _TORCH.match(name):
        return common.weight(facts, one.path)
    # Plug-ins (MPI, InfiniBand, one FFmpeg of five) are tried, and left out where their library is not there.
    if facts.host is None or not facts.host.system or common.weight(facts, one.path) is not Severity.ERROR:
        return Severity.NOTE
    return Severity.NOTE if one.path.startswith("nvidia/") else Severity.WARNING


def _has_torch(facts: Facts) -> bool:
    return any(one.path.startswith("torch/lib/") for one in facts.libraries)


def _unresolved(
    facts: Facts, owner: str | None, severity: Severity, found: list[tuple[Library, str]], built: tuple[int, int] | None
) -> Finding:
    names = list(dict.fromkeys(name for _, name in found))
    packages = list(dict.fromkeys(cuda.package(name, built[0] if built else None) for name in names))
    if all(packages):
        remedy = f"a root that also holds {', '.join(map(str, packages))}"
    elif any(_TORCH.match(name) or cuda.is_cuda(name) for name in names):
        remedy = common.mend(facts, owner)
    else:
        remedy = f"the system's package that has {', '.join(names)}, if the service uses this file"
    return Finding(
        "R3",
        severity,
        f"{_of(facts, owner)} needs {'a library' if len(names) == 1 else 'libraries'} that nothing here has: "
        f"{', '.join(names[:4])}",
        tuple([Evidence(f"needs {name}", one.path, owner=owner) for one, name in found]),
        _cannot_open(names),
        remedy,
    )


def _cannot_open(names: list[str]) -> str:
    return "; ".join(f"ImportError: {name}: cannot open shared object file: No such file or directory" for name in names[:3])


def _of(facts: Facts, owner: str | None) -> str:
    return f"{owner} {facts.version(owner)}" if owner else "a library of no installed package"
