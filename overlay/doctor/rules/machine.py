"""R11, R12 and R14: caches, folders and processes of the host don't bring in another CUDA than the tree's."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from overlay.doctor import cuda
from overlay.doctor.facts import Facts
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

#: One copy of each of these in a process, or two runtimes disagree about one GPU.
_ONCE = re.compile(r"(libcudart|libcublas|libnccl)[-.][^/]*$")


def caches(facts: Facts) -> Iterator[Finding]:
    """R11: no compiled kernel in a JIT cache is of another CUDA major, empty or cut short."""
    built = common.torch_cuda(facts)
    if built is None or facts.host is None:
        return
    for one in facts.host.cached:
        wrong = [name for name in one.needed if cuda.major(name) not in (None, built[0])]
        if wrong:
            yield Finding(
                "R11",
                Severity.ERROR,
                f"a cached kernel is linked to {wrong[0]}, and {common.torch_name(facts)} is built for CUDA {built[0]}",
                (Evidence(f"needs {', '.join(wrong)}", one.path),),
                "RuntimeError: cudaErrorInsufficientDriver (35), or: "
                f"{wrong[0]}: cannot open shared object file, at the first use of the kernel",
                f"remove {posixpath.dirname(one.path)}, or give each release its own cache folders",
            )
        elif one.why:
            yield Finding(
                "R11",
                Severity.WARNING,
                f"a file of a JIT cache can't be used: {one.why}",
                (Evidence(one.why, one.path),),
                "json.decoder.JSONDecodeError or OSError: file too short, when the kernel is looked up",
                f"remove {posixpath.dirname(one.path)}",
            )


def shadowing(facts: Facts) -> Iterator[Finding]:
    """R12: nothing that the linker or Python searches first holds another copy of what the tree has."""
    if facts.host is None or common.torch_cuda(facts) is None:
        return
    own = facts.names()
    unbound = sorted({one.owner or one.path for one in facts.libraries if not one.rpath and any(map(cuda.is_cuda, one.needed))})
    for severity, paths, where in (
        (Severity.WARNING, facts.host.shadows, "in LD_LIBRARY_PATH, before the root's own"),
        # The toolkit of the system: only what asks for a library without RPATH, and before torch is loaded, gets it.
        (Severity.NOTE, facts.host.fallbacks, "in the linker's cache (/etc/ld.so.conf.d), after the root's own"),
    ):
        shadows = [path for path in paths if posixpath.basename(path) in own]
        if not shadows:
            continue
        names = sorted({posixpath.basename(path) for path in shadows})
        yield Finding(
            "R12",
            severity,
            f"{', '.join(names[:4])} also lie{'s' if len(names) == 1 else ''} {where}",
            tuple(Evidence("another copy", path) for path in shadows),
            "another NCCL or cuBLAS than torch's is loaded (CUBLAS_STATUS_INVALID_VALUE, a hang in the first all_reduce)"
            + (f"; without RPATH, so exposed: {', '.join(unbound[:4])}" if unbound else ""),
            "a service environment without LD_LIBRARY_PATH, or without these folders in it",
        )
    if facts.host.extra_sites:
        yield Finding(
            "R12",
            Severity.WARNING,
            "the environment sees packages outside of its root",
            tuple(Evidence("an import root that comes in", path) for path in facts.host.extra_sites),
            "a package of the system or of the user's home is imported where the root has none",
            "a virtual environment without --system-site-packages, and PYTHONNOUSERSITE=1 in the service's environment",
        )


def live(facts: Facts) -> Iterator[Finding]:
    """R14: a running process has one libcudart, one libcublas and one libnccl, all below the root."""
    for process, text in sorted(facts.maps.items()):
        loaded: dict[str, set[str]] = {}
        for line in text.splitlines():
            path = line.split(maxsplit=5)[5].removesuffix(" (deleted)") if len(line.split(maxsplit=5)) == 6 else ""
            match = _ONCE.search(posixpath.basename(path))
            # What a wheel brings under a name of its own (auditwheel's NAME.libs) nothing else links to: torchvision does.
            if match and ".so" in path and not posixpath.dirname(path).endswith(".libs"):
                loaded.setdefault(match[1], set()).add(path)
        for name, paths in sorted(loaded.items()):
            foreign = [path for path in paths if not path.startswith(facts.root.rstrip("/") + "/")]
            if len(paths) == 1 and not foreign:
                continue
            yield Finding(
                "R14",
                Severity.ERROR,
                f"process {process} has {len(paths)} of {name} loaded"
                + (f", {len(foreign)} from outside of the root" if foreign else ""),
                tuple(Evidence("loaded", path) for path in sorted(paths)),
                "CUDA error: invalid device ordinal, a SIGFPE in a kernel's set-up, or a wrong NCCL at the first all_reduce",
                "a service environment without LD_LIBRARY_PATH, on a root that has one CUDA major; start it again",
            )
