"""A pasted traceback, answered from a table: which rule sees it, what causes it, what to check. Nothing is guessed beyond it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from overlay.doctor import cuda, symbols


@dataclass(frozen=True, slots=True)
class Explanation:
    """One known error of a text."""

    rule: str
    line: str  # as it stands in the text
    cause: str
    check: str


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: re.Pattern[str]
    rule: str
    cause: str  # may name groups of the pattern in braces
    check: str


def _known(pattern: str, rule: str, cause: str, check: str) -> _Known:
    return _Known(re.compile(pattern), rule, cause, check)


#: First match of a line wins, so the narrow ones stand before the wide ones.
_TABLE = (
    _known(
        r"compiled with different CUDA versions\. PyTorch has CUDA version (?P<one>[\d.]+) "
        r"whereas (?P<what>\w+) has (CUDA version )?(?P<other>[\d.]+\d|no CUDA)",
        "R1",
        "{what} is built for {other} and torch for CUDA {one}: a pin without a label takes every label, so an older one stayed",
        "the labels in torch/version.py and the other package's version.py; install both from one index, into a new root",
    ),
    _known(
        r"operator torchvision::nms does not exist",
        "R1",
        "torchvision is built for another torch or another CUDA than the one beside it",
        "that torchvision's minor release is torch's companion (0.26 for 2.11) and carries the same +cu label",
    ),
    _known(
        r"TypeAttr __ffi_repr__ is already registered",
        "R9",
        "two copies of TVM FFI are loaded: apache-tvm-ffi is newer than the copy that another package bundles",
        "which packages bring libtvm_ffi.so; pin apache-tvm-ffi to what they were made with",
    ),
    _known(
        r"libnvrtc-builtins\.so\.(?P<version>[\d.]+)",
        "R13",
        "NVRTC finds no builtins of its own version ({version}): CUDA 12 and 13 are both there, or the system's is another",
        "that only one of nvidia-cuda-nvrtc-cu12 and nvidia-cuda-nvrtc is installed, and LD_LIBRARY_PATH",
    ),
    _known(
        r"(?P<file>lib[\w+-]+\.so[\d.]*): cannot open shared object file",
        "R3",
        "{file} is nowhere that the linker looks{major}",
        "which package brought the library that asks for it, and that torch and nvidia/ lie in one root; if its package is "
        "installed in name, its files were removed with a package that owns the same paths (R5, R13)",
    ),
    _known(
        r"lib(?P<file>cublas\w*)\.so\.\d+: undefined symbol: (?P<symbol>\w+)",
        "R12",
        "lib{file} found a companion of another version: the system's was loaded instead of the package's",
        "LD_LIBRARY_PATH and /etc/ld.so.conf.d for CUDA's libraries",
    ),
    _known(
        r"undefined symbol: (?P<symbol>_Z\w+)",
        "R4",
        "the library was built for another torch: {declared} is not exported by the one that is installed{old}",
        "that the kernel package's version is the one for this torch: sglang-kernel 0.4.2 goes with torch 2.11.0+cu130",
    ),
    _known(
        r"undefined symbol: (?P<symbol>c10::\S+|at::\S+|torch::\S+|nccl\w+|nvshmem\w+|TVMFFI\w+|cu[A-Z]\w+)",
        "R4",
        "the library was built for another version of what defines {symbol}",
        "the versions of torch, NCCL, NVSHMEM, TVM FFI and the driver against those that the library was built with",
    ),
    _known(
        r"Could not load any common_ops library",
        "R4",
        "sgl_kernel tried its libraries for this GPU and none could be loaded: another CUDA major, or another torch",
        "the lines above it, which name the file that is missing or the symbol that is undefined",
    ),
    _known(
        r"no kernel image is available for execution on the device",
        "R7",
        "a library has no code for this GPU; with tensor parallelism one GPU of another kind in the group is enough",
        "doctor's R7 with --gpu: on RTX PRO 6000 (sm_120) sglang-kernel 0.4.2 has none for fa3 and flashmla",
    ),
    _known(
        r"NVIDIA driver on your system is too old \(found version (?P<found>\d+)\)",
        "R8",
        "the driver knows CUDA {found} (in thousandths), and torch is built for a newer major",
        "nvidia-smi: CUDA 13 needs driver branch 580 or newer",
    ),
    _known(
        r"(cudaErrorInsufficientDriver|CUDA driver version is insufficient)",
        "R11",
        "a kernel that was compiled for another CUDA is used again from a JIT cache, or the driver is too old",
        "the flashinfer, triton and torch_extensions caches: remove them, or one cache root for each release",
    ),
    _known(
        r"(?P<what>flashinfer-\w+(-\w+)?) version \((?P<one>[^)]*)\) does not match",
        "R9",
        "{what} {one} is left over from a partial upgrade",
        "that flashinfer-python, flashinfer-cubin and flashinfer-jit-cache have one version",
    ),
    _known(
        r"Value '(?P<gpu>sm_\w+)' is not defined for option 'gpu-name'",
        "R10",
        "the ptxas that is used is older than this GPU ({gpu})",
        "TRITON_PTXAS_PATH, set to the ptxas of a toolkit that knows it",
    ),
    _known(
        r"CUDA compiler and (CUDA )?toolkit headers are incompatible",
        "R10",
        "nvcc and the headers that it finds are of two toolkits",
        "CUDA_HOME, and which nvcc is first on PATH",
    ),
    _known(
        r"The detected CUDA version \((?P<one>[\d.]+)\) mismatches the version that was used to compile\s+"
        r"PyTorch \((?P<other>[\d.]+)\)",
        "R10",
        "nvcc is of CUDA {one} and torch of {other}",
        "CUDA_HOME: a toolkit {other}",
    ),
    _known(
        r"(cuda-bindings|cuda-python)\S*.*(conflict|but you have|incompatible|depends on)",
        "R6",
        "torch with CUDA 12 needs cuda-bindings below 13, and sglang 0.5.11 needs cuda-python 13: there is no such set",
        "the torch in use: sglang 0.5.11 goes with torch 2.11.0+cu130, on driver branch 580 or newer",
    ),
    _known(
        r"(CUBLAS_STATUS_INVALID_VALUE)",
        "R12",
        "most often another cuBLAS than torch's is loaded",
        "/proc/<pid>/maps of each rank for libcublas (doctor --pid)",
    ),
    _known(
        r"(file too short|invalid ELF header)",
        "R0",
        "a library is truncated or is no library",
        "doctor PATH --hashes: it names the file and its package",
    ),
)


def explain(text: str) -> tuple[Explanation, ...]:
    """What of a traceback is known, in the order of the text, each rule and cause once."""
    found: dict[tuple[str, str], Explanation] = {}
    for line in text.splitlines():
        for known in _TABLE:
            match = known.pattern.search(line)
            if match:
                cause = known.cause.format(**_words(match))
                found.setdefault((known.rule, cause), Explanation(known.rule, line.strip()[:300], cause, known.check))
                break
    return tuple(found.values())


def _words(match: re.Match[str]) -> dict[str, str]:
    words = {"major": "", "old": "", "declared": "", **{key: value or "" for key, value in match.groupdict().items()}}
    if words.get("file") and (major := cuda.major(words["file"])):
        words["major"] = f"; something here is built for CUDA {major}, and torch for another major if its own is there"
    if words.get("symbol"):
        words["declared"] = symbols.demangle([words["symbol"]])[words["symbol"]]
        if symbols.old_string(words["symbol"]):
            words["old"] = "; it is of the C++ ABI that torch left with 2.6"
    return words
