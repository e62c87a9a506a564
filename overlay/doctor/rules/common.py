"""What several rules ask of the facts: which torch this is, how bad a broken file is, which package mends it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from overlay.doctor import cuda, known
from overlay.doctor.facts import Facts, Library
from overlay.doctor.finding import Severity

#: What tells a file for one torch or CUDA from the same file for another, in its name.
_VARIANT = re.compile(r"[_-]?(cu|torch)\d+(?=[_.-])")
#: Old names of packages that go on under another.
_SUCCESSORS = {"sgl-kernel": "sglang-kernel"}


def torch_cuda(facts: Facts) -> tuple[int, int] | None:
    """The CUDA version that torch was built for: its version.py, else its label, else what its libraries need."""
    stated = cuda.version(facts.cuda) or cuda.of_label(facts.version("torch"))
    if stated or is_cpu(facts):
        return stated
    majors = {cuda.major(name) for one in facts.libraries if one.path.startswith("torch/lib/") for name in one.needed}
    majors.discard(None)
    return (min(majors), 0) if majors else None


def is_cpu(facts: Facts) -> bool:
    """Whether the tree's torch is a CPU build, beside which no CUDA library can be loaded at all."""
    version = facts.version("torch")
    # Whoever names a CPU build to check kernels against wants to know what they miss.
    return version is not None and version.endswith("+cpu") and not facts.cuda and not facts.known_exports


def torch_name(facts: Facts) -> str:
    """torch with its version and CUDA, for sentences."""
    version, built = facts.version("torch"), torch_cuda(facts)
    label = f"+cu{built[0]}{built[1]}" if built and version and "+" not in version else ""
    return f"torch {version or '(of unknown version)'}{label}"


def weight(facts: Facts, path: str) -> Severity:
    """How bad it is if this file can't be loaded."""
    if is_cpu(facts):
        return Severity.NOTE
    return Severity.ERROR if path.startswith(known.IMPORTED) else Severity.WARNING


def spared(library: Library, faulty: Iterable[Library], libraries: Iterable[Library]) -> bool:
    """Whether a package brings the same file once for each torch or CUDA, and another one of them has no fault.

    libx_torch24-cuda.so beside libx_torch211-cuda.so, hook_cu12.so beside hook_cu13.so: the package loads the one that fits.
    """
    bad = {one.path for one in faulty}
    kind = _VARIANT.sub("", library.path)
    return any(one.path not in bad and _VARIANT.sub("", one.path) == kind for one in libraries)


def worst(severities: Iterable[Severity]) -> Severity:
    """The worst of some; a note if there are none."""
    order = list(Severity)
    return min(severities, key=order.index, default=Severity.NOTE)


def mend(facts: Facts, owner: str | None) -> str:
    """Which version of a package goes with the tree's torch, in words."""
    if owner is None:
        return "rebuild it against this torch, or remove it: no installed package owns it"
    name = _SUCCESSORS.get(owner, owner)
    torch, built = facts.version("torch"), torch_cuda(facts)
    pinned = known.PINNED.get(name)
    instead = f" instead of {owner}" if name != owner else ""
    if pinned and name != "torch" and (torch or "").split("+")[0] == known.PINNED["torch"]:
        if built and built[0] < 13:
            return f"{full_set()}{f' (with {name} {instead.strip()})' if instead else ''}"
        return f"{name}=={pinned}{instead}, the build for torch {known.PINNED['torch']} and CUDA 13.0"
    wanted = f" and CUDA {cuda.dotted(built)}" if built else ""
    return f"{name}{instead}, in the build for torch {(torch or 'of this root').split('+')[0]}{wanted}"


def full_set() -> str:
    """What to do with a torch of CUDA 12 under sglang 0.5.11."""
    return (
        "a whole new root with torch==2.11.0 (PyPI's is the cu130 build), torchvision==0.26.0, torchaudio==2.11.0 and "
        "sglang-kernel==0.4.2, on a driver of branch 580 or newer: sglang 0.5.11 has no set for CUDA 12"
    )


def by_owner(libraries: Iterable[Library]) -> dict[str | None, list[Library]]:
    """Libraries by the package that brought them, in the order of their paths."""
    groups: dict[str | None, list[Library]] = {}
    for one in sorted(libraries, key=lambda one: one.path):
        groups.setdefault(one.owner, []).append(one)
    return groups
