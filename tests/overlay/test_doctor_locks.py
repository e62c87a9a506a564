"""The doctor before a download: a lock that no installer can make is refused with the reason; explained errors."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import snapshot.manifest
import snapshot.wheel
from overlay import profiles
from overlay.doctor import dist, locked, rules
from overlay.doctor.explain import explain
from overlay.doctor.finding import Severity
from overlay.profiles import PROFILES
from tools.paths import REPO, VERSION

CU130 = (
    "sglang==0.5.11\ntorch==2.11.0\ntorchaudio==2.11.0\nsglang-kernel==0.4.2\ncuda-python==13.4.4\ncuda-bindings==13.4.4\n"
    "nvidia-cudnn-cu13==9.19.0.56\nnvidia-cusparselt-cu13==0.8.0\nnvidia-nccl-cu13==2.28.9\nnvidia-nvshmem-cu13==3.4.5\n"
    "triton==3.6.0 \\\n    --hash=sha256:00\n    # via torch\n"
)


def _errors(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "x.lock").write_text(text)
    return [one.rule for one in rules.examine(locked.read(tmp_path / "x.lock")) if one.severity is Severity.ERROR]


def test_the_set_of_0_5_11_is_clean(tmp_path: Path) -> None:
    assert _errors(tmp_path, CU130) == []


def test_sglang_25069_a_torch_of_cuda_12_is_refused_before_the_download(tmp_path: Path) -> None:
    assert "R6" in _errors(tmp_path, CU130.replace("torch==2.11.0\n", "torch==2.11.0+cu128\n", 1))


def test_an_older_nccl_is_seen(tmp_path: Path) -> None:
    assert _errors(tmp_path, CU130.replace("2.28.9", "2.27.7")) == ["R6"]


def test_the_cpu_lock_is_clean() -> None:
    assert rules.examine(locked.read(PROFILES / "cpu.lock")) == ()


@pytest.mark.parametrize("python", profiles.load("cu130").pythons)
def test_the_cu130_locks_are_clean_and_whole(python: str) -> None:
    """The doctor has nothing to say, and the pinned SGLang's own requirements, read from its metadata, are all met."""
    profile = profiles.load("cu130", python)
    facts = locked.read(profile.lock)
    assert facts.cuda == "13.0" and rules.examine(facts) == ()
    text = profile.lock.read_text()
    assert not re.search(r"://|--(extra-)?index|--find-links|(^|\s)/\w", text, re.MULTILINE)
    environment = {"extra": "", "python_version": python, "python_full_version": f"{python}.0"}
    pin = snapshot.manifest.load(VERSION)
    with zipfile.ZipFile(snapshot.wheel.fetch(pin)) as wheel:
        _, _, requires = dist.metadata(wheel.read(f"sglang-{VERSION}.dist-info/METADATA").decode())
    assert python != "3.11" or f"sglang=={VERSION} --hash=sha256:{pin.wheel_sha256}\n" in text, "the same wheel as the snapshot's"
    wanted = [Requirement(line) for line in requires]
    needed = [one for one in wanted if one.marker is None or one.marker.evaluate(environment)]
    assert len(needed) > 50
    for one in needed:
        found = facts.version(canonicalize_name(one.name))
        assert found and one.specifier.contains(found, prereleases=True), str(one)


#: A line as it was met, the rule that answers, and words of the cause.
MET = {
    "notebooks_331": (
        "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA versions. PyTorch has CUDA "
        "version 13.0 whereas TorchAudio has CUDA version 12.8. Please install the TorchAudio version that matches",
        "R1",
        "TorchAudio is built for",
    ),
    "vllm_56829": ("RuntimeError: operator torchvision::nms does not exist", "R1", "another torch or another CUDA"),
    "kvcache_sglang_33": (
        "ImportError: /x/common_ops.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
        "R4",
        "c10::cuda::c10_cuda_check_implementation",
    ),
    "flash_attention_1644": ("undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs", "R4", "C++ ABI that torch left"),
    "sglang_18203": ("[sgl_kernel] CRITICAL: Could not load any common_ops library!", "R4", "none could be loaded"),
    "vllm_52300": ("ImportError: libcudart.so.13: cannot open shared object file: No such file", "R3", "built for CUDA 13"),
    "sglang_31035": ("ImportError: libnvshmem_host.so.3: cannot open shared object file", "R3", "nowhere that the linker"),
    "pytorch_178196": ("nvrtc: error: failed to open libnvrtc-builtins.so.13.0.", "R13", "13.0"),
    "flashinfer_5145": ("RuntimeError: cudaErrorInsufficientDriver (35)", "R11", "JIT cache"),
    "flashinfer_3493": ("error: CUDA compiler and CUDA toolkit headers are incompatible", "R10", "two toolkits"),
    "flashinfer_4337": ("RuntimeError: flashinfer-jit-cache version (0.6.7) does not match flashinfer", "R9", "0.6.7"),
    "triton_8539": ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "R10", "older than this GPU"),
    "sglang_38515": ("CUDA error: no kernel image is available for execution on the device", "R7", "no code for this GPU"),
    "funasr_2973": ("The NVIDIA driver on your system is too old (found version 12080).", "R8", "12080"),
    "pytorch_91067": ("libcublas.so.11: undefined symbol: cublasLtHSHMatmulAlgoInit", "R12", "the system's was loaded"),
    "ktransformers_2045": ("TypeAttr __ffi_repr__ is already registered", "R9", "two copies of TVM FFI"),
    "sglang_25069": ("torch 2.11.0+cu128 requires cuda-bindings<13, but you have cuda-bindings 13.1", "R6", "no such set"),
}


@pytest.mark.parametrize("name", MET)
def test_explained(name: str) -> None:
    line, rule, cause = MET[name]
    (one,) = explain(f"Traceback (most recent call last):\n  File 'x.py', line 1\n{line}\n")
    assert one.rule == rule and cause in one.cause and one.check
    assert one.line == line


def test_what_is_not_known_is_not_guessed() -> None:
    assert explain("ValueError: something else\n{braces} %s") == ()
    done = subprocess.run([sys.executable, "-m", "overlay", "explain"], input="x\0y", cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 1 and "no known error" in done.stdout
