"""What CUDA's names and numbers say: majors by file name, drivers by toolkit, GPUs by capability."""

from __future__ import annotations

import re

#: File names that differ from one CUDA major to the next. libcusparse.so.12, libcudnn.so.9, libnccl.so.2, libcurand.so.10,
#: libcusparseLt.so.0 and libnvshmem_host.so.3 are the same in CUDA 12 and 13, so they prove nothing.
_SAME_AS_MAJOR = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|cupti)\.so\.(\d+)$")
_BEHIND = {"libcufft.so.11": 12, "libcufft.so.12": 13, "libcusolver.so.11": 12, "libcusolver.so.12": 13}

#: The package that brings a file, per CUDA major, as torch 2.11.0 pins it.
_TOOLKIT = {
    "libcudart": {12: "nvidia-cuda-runtime-cu12==12.8.90", 13: "nvidia-cuda-runtime==13.0.96"},
    "libcublas": {12: "nvidia-cublas-cu12==12.8.4.1", 13: "nvidia-cublas==13.1.0.3"},
    "libcublasLt": {12: "nvidia-cublas-cu12==12.8.4.1", 13: "nvidia-cublas==13.1.0.3"},
    "libnvrtc": {12: "nvidia-cuda-nvrtc-cu12==12.8.93", 13: "nvidia-cuda-nvrtc==13.0.88"},
    "libnvrtc-builtins": {12: "nvidia-cuda-nvrtc-cu12==12.8.93", 13: "nvidia-cuda-nvrtc==13.0.88"},
    "libcupti": {12: "nvidia-cuda-cupti-cu12==12.8.90", 13: "nvidia-cuda-cupti==13.0.85"},
    "libcufft": {12: "nvidia-cufft-cu12==11.3.3.83", 13: "nvidia-cufft==12.0.0.61"},
    "libcusolver": {12: "nvidia-cusolver-cu12==11.7.3.90", 13: "nvidia-cusolver==12.0.4.66"},
    "libcusparse": {12: "nvidia-cusparse-cu12==12.5.8.93", 13: "nvidia-cusparse==12.6.3.3"},
    "libcurand": {12: "nvidia-curand-cu12==10.3.9.90", 13: "nvidia-curand==10.4.0.35"},
    "libnvJitLink": {12: "nvidia-nvjitlink-cu12==12.8.93", 13: "nvidia-nvjitlink==13.0.88"},
    "libcufile": {12: "nvidia-cufile-cu12==1.13.1.3", 13: "nvidia-cufile==1.15.1.6"},
    "libcudnn": {12: "nvidia-cudnn-cu12==9.19.0.56", 13: "nvidia-cudnn-cu13==9.19.0.56"},
    "libcusparseLt": {12: "nvidia-cusparselt-cu12==0.7.1", 13: "nvidia-cusparselt-cu13==0.8.0"},
    "libnccl": {12: "nvidia-nccl-cu12==2.28.9", 13: "nvidia-nccl-cu13==2.28.9"},
    "libnvshmem_host": {12: "nvidia-nvshmem-cu12==3.4.5", 13: "nvidia-nvshmem-cu13==3.4.5"},
}

#: The oldest driver branch of a toolkit. Within a major, older drivers run newer runtimes, but without PTX.
DRIVERS = {(12, 0): 525, (12, 6): 560, (12, 8): 570, (12, 9): 575, (13, 0): 580}


def major(name: str) -> int | None:
    """The CUDA major that a library's file name proves, None where it proves none."""
    match = _SAME_AS_MAJOR.match(name)
    return int(match[1]) if match else _BEHIND.get(name)


def is_cuda(name: str) -> bool:
    """Whether a file name is one of the CUDA packages' libraries."""
    return name.split(".so")[0] in _TOOLKIT


def package(name: str, wanted: int | None) -> str | None:
    """The package and version that brings a CUDA library's file name, for torch 2.11.0."""
    majors = _TOOLKIT.get(name.split(".so")[0])
    proved = major(name) or wanted
    return majors.get(proved) if majors and proved else None


def version(text: str | None) -> tuple[int, int] | None:
    """`13.0` as numbers; None where there is no number."""
    match = re.match(r"(\d+)(?:\.(\d+))?", text or "")
    return (int(match[1]), int(match[2] or 0)) if match else None


def of_label(text: str | None) -> tuple[int, int] | None:
    """The CUDA version of a local label: 2.11.0+cu128 is (12, 8). None for `+cpu` and for no label."""
    match = re.search(r"\+cu(\d\d+?)(\d)(?:\D|$)", text or "")
    return (int(match[1]), int(match[2])) if match else None


def dotted(pair: tuple[int, int]) -> str:
    """(12, 8) as 12.8"""
    return f"{pair[0]}.{pair[1]}"


def oldest_driver(runtime: tuple[int, int]) -> int:
    """The driver branch that a runtime of this version asks for."""
    return max((branch for known, branch in DRIVERS.items() if known <= runtime), default=525)


def minor_of_driver(branch: int) -> tuple[int, int]:
    """The newest CUDA version of a driver branch, as far as it is known."""
    return max((known for known, oldest in DRIVERS.items() if oldest <= branch), default=(11, 8))
