"""R7, R8 and R10: the GPUs, their driver and the compilers can run what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from overlay.doctor import cuda, known
from overlay.doctor.facts import Facts, Gpu, Library
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

#: The oldest toolkit that can compile for a capability; other GPUs are older than any toolkit in question.
_COMPILES = {100: (12, 8), 103: (12, 9), 110: (13, 0), 120: (12, 8), 121: (12, 9)}


def coverage(facts: Facts) -> Iterator[Finding]:
    """R7: every library with GPU code has some for each GPU; told file by file, since gaps are per operator."""
    gpus = {gpu.capability: gpu for gpu in (facts.host.gpus if facts.host else ())}
    for capability, gpu in sorted(gpus.items()):
        for owner, libraries in common.by_owner(facts.libraries).items():
            if (owner or "").startswith("nvidia-"):
                continue
            lacking = [one for one in libraries if one.code and not any(code.runs_on(capability) for code in one.code)]
            backends = [one for one in lacking if _backend(one)]
            for one in backends:
                yield _no_backend(one, gpu)
            # _C_cutlass_90a.so says itself which GPU it is for; its package has others.
            rest = [one for one in lacking if one not in backends and not _named_for_its_gpu(one)]
            if rest:
                yield _no_code(facts, owner, rest, gpu)


def _named_for_its_gpu(one: Library) -> bool:
    return any(re.search(rf"(?:^|[_-]|sm){code.capability}[af]?(?:[_.-])", one.name) for code in one.code)


def _backend(one: Library) -> str | None:
    return next((backend for start, backend in known.BACKENDS.items() if one.path.startswith(start)), None)


def _no_backend(one: Library, gpu: Gpu) -> Finding:
    backend = _backend(one)
    return Finding(
        "R7",
        Severity.WARNING,
        f"{one.name} has no code for {gpu.name} (sm_{gpu.capability}): it rules out the attention backend {backend}",
        (Evidence(f"code for {', '.join(map(str, one.code))}", one.path, owner=one.owner),),
        "RuntimeError: CUDA error: no kernel image is available for execution on the device, "
        "in graph capture or at the first request",
        f"--attention-backend flashinfer or --attention-backend triton, never {backend}, on this GPU",
    )


def _no_code(facts: Facts, owner: str | None, libraries: list[Library], gpu: Gpu) -> Finding:
    return Finding(
        "R7",
        common.worst(common.weight(facts, one.path) for one in libraries),
        f"{owner or 'a library of no installed package'} has {len(libraries)} "
        f"{'file' if len(libraries) == 1 else 'files'} without code for {gpu.name} (sm_{gpu.capability})",
        tuple(Evidence(f"code for {', '.join(map(str, one.code))}", one.path, owner=owner) for one in libraries),
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        common.mend(facts, owner) + f", which has to have sm_{gpu.capability}; or leave out what uses these files",
    )


def driver(facts: Facts) -> Iterator[Finding]:
    """R8: the driver is of the runtime's branch or newer. Within a CUDA major an older one runs all but PTX."""
    built = common.torch_cuda(facts)
    found = facts.host.driver if facts.host else None
    branch = cuda.version(found)
    if built is None or branch is None:
        return
    wanted, oldest = cuda.oldest_driver(built), cuda.oldest_driver((built[0], 0))
    if branch[0] >= wanted:
        return
    has = cuda.minor_of_driver(branch[0])
    grave = branch[0] < oldest
    yield Finding(
        "R8",
        Severity.ERROR if grave else Severity.WARNING,
        f"driver {found} is {'too old' if grave else 'older than the branch'} for CUDA {cuda.dotted(built)}, which "
        f"{common.torch_name(facts)} is built for",
        (Evidence(f"driver {found}; CUDA {cuda.dotted(built)} needs branch {oldest if grave else wanted}"),),
        f"RuntimeError: The NVIDIA driver on your system is too old (found version {has[0]}0{has[1]}0)"
        if grave
        else "CUDA error: the provided PTX was compiled with an unsupported toolchain, where a kernel comes as PTX",
        f"NVIDIA driver of branch {wanted} or newer"
        + ("" if built[0] < 13 else "; sglang 0.5.11 has no set for an older one, since it requires cuda-python>=13.0"),
    )


def toolchain(facts: Facts) -> Iterator[Finding]:
    """R10: nvcc and the toolkit's headers are of torch's major and of one version; nvcc and ptxas know the GPUs."""
    built = common.torch_cuda(facts)
    if built is None or facts.host is None:
        return
    tools = [tool for tool in facts.host.tools if tool.version]
    newest = max((gpu.capability for gpu in facts.host.gpus), default=0)
    for tool in tools:
        if tool.name in ("nvcc", "cuda.h") and tool.version[0] != built[0]:
            yield Finding(
                "R10",
                Severity.ERROR,
                f"{tool.name} is of CUDA {cuda.dotted(tool.version)}, and {common.torch_name(facts)} of {cuda.dotted(built)}",
                (Evidence(f"{tool.name} {cuda.dotted(tool.version)}", tool.path),),
                f"RuntimeError: The detected CUDA version ({cuda.dotted(tool.version)}) mismatches the version that "
                f"was used to compile PyTorch ({cuda.dotted(built)}); or a JIT kernel that loads the runtime of the other major",
                f"CUDA toolkit {cuda.dotted(built)}, named by CUDA_HOME",
            )
        needed = _COMPILES.get(newest, (0, 0))
        if tool.name in ("nvcc", "ptxas") and tool.version < needed and not _newer_beside(tool, tools, needed):
            yield Finding(
                "R10",
                Severity.ERROR,
                f"{tool.name} {cuda.dotted(tool.version)} can't compile for sm_{newest}",
                (Evidence(f"{tool.name} {cuda.dotted(tool.version)}; sm_{newest} needs {cuda.dotted(needed)}", tool.path),),
                f"ptxas fatal: Value 'sm_{newest}' is not defined for option 'gpu-name'",
                f"a CUDA toolkit of {cuda.dotted(max(needed, built))}"
                + (", with TRITON_PTXAS_PATH set to its bin/ptxas" if tool.bundled else ", named by CUDA_HOME"),
            )
    compiler = next((tool for tool in tools if tool.name == "nvcc"), None)
    headers = next((tool for tool in tools if tool.name == "cuda.h"), None)
    if compiler and headers and compiler.version != headers.version and compiler.version[0] == headers.version[0]:
        yield Finding(
            "R10",
            Severity.WARNING,
            f"nvcc {cuda.dotted(compiler.version)} finds the headers of CUDA {cuda.dotted(headers.version)}",
            tuple(Evidence(f"{tool.name} {cuda.dotted(tool.version)}", tool.path) for tool in (compiler, headers)),
            "error: CUDA compiler and CUDA toolkit headers are incompatible, when FlashInfer compiles a kernel",
            f"nvcc and headers of one toolkit {cuda.dotted(built)}, named by CUDA_HOME",
        )


def _newer_beside(tool, tools, needed: tuple[int, int]) -> bool:
    """Triton brings a second ptxas for new GPUs, and takes it for them."""
    return tool.bundled and any(other.bundled and other.name == tool.name and other.version >= needed for other in tools)
