"""What goes with which torch, and what the exports of known builds are: tables with their source, no rules."""

from __future__ import annotations

import functools
import lzma
from pathlib import Path

_EXPORTS = Path(__file__).parent / "exports" / "torch.xz"

#: torch's minor release, and the minor releases of the packages built for it alone (PyTorch's compatibility tables).
COMPANIONS = {
    "2.9": {"torchvision": "0.24", "torchaudio": "2.9"},
    "2.10": {"torchvision": "0.25", "torchaudio": "2.10"},
    "2.11": {"torchvision": "0.26", "torchaudio": "2.11", "torchcodec": "0.11"},
    "2.12": {"torchvision": "0.27"},
    "2.13": {"torchvision": "0.28"},
    "2.14": {"torchvision": "0.29"},
}

#: The set that sglang 0.5.11 resolves to, all of it built for CUDA 13.0.
PINNED = {
    "torch": "2.11.0",
    "torchvision": "0.26.0",
    "torchaudio": "2.11.0",
    "torchcodec": "0.11.1",
    "triton": "3.6.0",
    "sglang-kernel": "0.4.2",
    "flashinfer-python": "0.6.8.post1",
    "flashinfer-cubin": "0.6.8.post1",
    "cuda-python": "13.0 or newer",
}

#: What decides whether a lock can be installed at all: requirements from these packages' own metadata.
REQUIRES = {
    ("sglang", "0.5.11"): ("torch==2.11.0", "torchaudio==2.11.0", "cuda-python>=13.0", "sglang-kernel==0.4.2"),
    ("torch", "2.11.0"): (
        *("cuda-bindings>=13.0.3,<14", "nvidia-cudnn-cu13==9.19.0.56", "nvidia-cusparselt-cu13==0.8.0"),
        *("nvidia-nccl-cu13==2.28.9", "nvidia-nvshmem-cu13==3.4.5", "triton==3.6.0"),
    ),
    ("torch", "2.11.0+cu128"): (
        *("cuda-bindings>=12.9.4,<13", "nvidia-cudnn-cu12==9.19.0.56", "nvidia-cusparselt-cu12==0.7.1"),
        *("nvidia-nccl-cu12==2.28.9", "nvidia-nvshmem-cu12==3.4.5", "triton==3.6.0"),
    ),
}
REQUIRES["torch", "2.11.0+cu130"] = REQUIRES["torch", "2.11.0"]

#: CUDA 13's packages that have dropped the suffix which they had for CUDA 12.
UNSUFFIXED = frozenset(
    f"nvidia-{name}"
    for name in (
        *("cublas", "cuda-cupti", "cuda-nvrtc", "cuda-runtime", "cufft", "cufile", "curand", "cusolver", "cusparse"),
        *("nvjitlink", "nvtx"),
    )
)

#: The attention backend that a kernel file carries, and what serves where it has no code for the GPU.
BACKENDS = {
    "sgl_kernel/flash_ops": "fa3",
    "sgl_kernel/flashmla_ops": "flashmla",
}
#: GPUs by capability, for sentences.
GPUS = {80: "A100", 89: "L40S", 90: "H100", 100: "B200", 103: "B300", 120: "RTX PRO 6000", 121: "GB10"}
#: Import packages that the service loads at start: what is broken in them ends it. The rest may never be imported.
IMPORTED = ("torch/", "torchaudio/", "torchvision/", "sgl_kernel/", "triton/_C/libtriton", "tvm_ffi/", "xgrammar/", "nvidia/")


def builds() -> tuple[str, ...]:
    """The torch builds whose exported symbols are known."""
    return tuple(_tables())


def exports(build: str) -> frozenset[str]:
    """The torch, ATen, c10 and Python-binding symbols that a torch build exports; KeyError for an unknown build."""
    return _tables()[build]


@functools.cache
def _tables() -> dict[str, frozenset[str]]:
    """Lines of the file: a first one with the builds, then a letter a build that has the symbol, a blank, the symbol."""
    head, *lines = lzma.decompress(_EXPORTS.read_bytes()).decode().splitlines()
    names = head.split()
    rows = [line.split(" ", 1) for line in lines]
    letters = zip("abcdef", names, strict=False)
    return {name: frozenset(symbol for marks, symbol in rows if letter in marks) for letter, name in letters}
