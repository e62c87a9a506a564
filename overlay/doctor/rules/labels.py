"""R1 and R9: packages that are built for each other say so, in their labels and versions.

Labels come from version.py: PyPI's METADATA of torch says 2.11.0 where the code says 2.11.0+cu130, and a pin without a
label is satisfied by every label, which is how a cu128 torchaudio stays beside a cu130 torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from overlay.doctor import cuda, known
from overlay.doctor.facts import Facts
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

_NAMES = {"torchaudio": "TorchAudio", "torchvision": "torchvision", "torchcodec": "torchcodec"}


def coherence(facts: Facts) -> Iterator[Finding]:
    """R1: torch, torchaudio, torchvision and torchcodec are built for the same CUDA."""
    built = common.torch_cuda(facts)
    if built is None:
        return
    for name, spoken in _NAMES.items():
        version = facts.version(name)
        label = cuda.of_label(version)
        on_cpu = bool(version and version.endswith("+cpu"))
        if label == built or (label is None and not on_cpu):
            continue
        if name == "torchcodec" and on_cpu:
            continue  # PyPI's build decodes on the CPU, and is what torch's CUDA builds are used with
        grave = label is None or label[0] != built[0]
        has = f"CUDA version {cuda.dotted(label)}" if label else "no CUDA"
        consequence = (
            f"RuntimeError: Detected that PyTorch and {spoken} were compiled with different CUDA versions. PyTorch has "
            f"CUDA version {cuda.dotted(built)} whereas {spoken} has {has}"
        )
        if name == "torchvision" and grave:
            consequence += "; or: RuntimeError: operator torchvision::nms does not exist"
        yield Finding(
            "R1",
            Severity.ERROR if grave else Severity.WARNING,
            f"{name} {version} is not built for the CUDA of {common.torch_name(facts)}",
            (
                Evidence(f"torch.version.cuda is {cuda.dotted(built)}", "torch/version.py", owner="torch"),
                Evidence(f"__version__ is {version}", f"{name}/version.py", owner=name),
            ),
            consequence,
            common.mend(facts, name),
        )


def lockstep(facts: Facts) -> Iterator[Finding]:
    """R9: versions that move together: torch's companions, triton, FlashInfer's three packages, one TVM FFI."""
    yield from _companions(facts)
    yield from _triton(facts)
    yield from _flashinfer(facts)
    yield from _tvm_ffi(facts)


def _companions(facts: Facts) -> Iterator[Finding]:
    torch = facts.version("torch")
    for name, wanted in known.COMPANIONS.get(_minor(torch), {}).items():
        version = facts.version(name)
        if version and _minor(version) != wanted:
            yield Finding(
                "R9",
                common.worst([common.weight(facts, f"{name}/")]),
                f"{name} {version} is built for another torch than {torch}",
                (Evidence(f"torch {torch} goes with {name} {wanted}", owner=name),),
                "RuntimeError: operator torchvision::nms does not exist"
                if name == "torchvision"
                else f"OSError: Could not load this library: lib{name}.so (undefined symbol)",
                f"{name}=={known.PINNED[name]}" if _minor(torch) == "2.11" else f"{name} {wanted}, for torch {torch}",
            )


def _triton(facts: Facts) -> Iterator[Finding]:
    triton, torch = facts.version("triton"), facts.version("torch")
    if triton and _minor(torch) == "2.11" and not common.is_cpu(facts) and triton != known.PINNED["triton"]:
        yield Finding(
            "R9",
            Severity.ERROR,
            f"triton {triton} is not the one that torch {torch} was made with",
            (Evidence("torch 2.11.0 requires triton==3.6.0", owner="triton"),),
            "ImportError or AttributeError in torch._inductor.runtime.triton_heuristics, when a graph is compiled",
            "triton==3.6.0",
        )


def _flashinfer(facts: Facts) -> Iterator[Finding]:
    base = facts.version("flashinfer-python")
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        version = facts.version(name)
        if base and version and version.split("+")[0] != base.split("+")[0]:
            yield Finding(
                "R9",
                Severity.ERROR,
                f"{name} {version} does not go with flashinfer-python {base}",
                (Evidence(f"flashinfer-python is {base}", owner="flashinfer-python"), Evidence(f"it is {version}", owner=name)),
                f"RuntimeError: {name} version ({version}) does not match flashinfer version ({base})",
                f"{name}=={base.split('+')[0]}",
            )


def _tvm_ffi(facts: Facts) -> Iterator[Finding]:
    copies = [one for one in facts.libraries if one.name == "libtvm_ffi.so"]
    if facts.version("apache-tvm-ffi") and len({one.owner for one in copies}) > 1:
        others = sorted({str(one.owner) for one in copies} - {"apache-tvm-ffi"})
        yield Finding(
            "R9",
            Severity.WARNING,
            f"apache-tvm-ffi {facts.version('apache-tvm-ffi')} is there beside another copy of its library",
            tuple([Evidence("a copy of libtvm_ffi.so", one.path, owner=one.owner) for one in copies]),
            "TypeAttr __ffi_repr__ is already registered, and an abort: Rank 0 scheduler is dead",
            f"the apache-tvm-ffi version that {', '.join(others)} bundles, or a root without {', '.join(others)}",
        )


def _minor(version: str | None) -> str:
    return ".".join((version or "").split("+")[0].split(".")[:2])
