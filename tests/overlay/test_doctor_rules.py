"""The rules R1 to R14, each with an environment that has the fault and one that hasn't; rows of public bugs by their symptom."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from overlay.doctor import rules
from overlay.doctor.facts import Cached, Distribution, Entry, Facts, Gpu, Host, Library, Tool
from overlay.doctor.fatbin import Code
from overlay.doctor.finding import Finding, Severity
from overlay.doctor.symbols import siblings

CUDART, NCCL = "nvidia/cu13/lib/libcudart.so.13", "nvidia/nccl/lib/libnccl.so.2"
KERNEL = "sgl_kernel/sm100/common_ops.abi3.so"
EXPORTED = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
OLD = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"


def dist(name: str, version: str, *requires: str, files: tuple[str, ...] = (), found: str = "same") -> Distribution:
    record = tuple(Entry(file, f"{name}-{file}", 1, found) for file in files)
    return Distribution(name, version, requires, (*record, Entry(f"{name}.dist-info/METADATA", None, None)))


def healthy(**changes) -> Facts:
    """A small but whole environment for CUDA 13 on an RTX PRO 6000."""
    facts = Facts(
        kind="tree",
        root="/site",
        labels={"torch": "2.11.0+cu130", "torchaudio": "2.11.0+cu130", "torchvision": "0.26.0+cu130"},
        cuda="13.0",
        distributions=(
            dist("torch", "2.11.0", "triton==3.6.0", "cuda-toolkit[cudart]==13.0.2", "nvidia-nccl-cu13==2.28.9"),
            dist("torchaudio", "2.11.0"),
            dist("torchvision", "0.26.0", "torch==2.11.0"),
            dist("triton", "3.6.0"),
            dist("cuda-toolkit", "13.0.2", "nvidia-cuda-runtime==13.0.*; extra == 'cudart'"),
            dist("nvidia-cuda-runtime", "13.0.96", files=(CUDART,)),
            dist("nvidia-nccl-cu13", "2.28.9", files=(NCCL,)),
            dist("sglang-kernel", "0.4.2", files=(KERNEL,)),
            dist("flashinfer-python", "0.6.8.post1"),
            dist("flashinfer-cubin", "0.6.8.post1"),
            dist("apache-tvm-ffi", "0.1.15"),
        ),
        libraries=(
            Library(CUDART, "nvidia-cuda-runtime", ("libc.so.6",), soname="libcudart.so.13"),
            Library(NCCL, "nvidia-nccl-cu13", exported=frozenset({"ncclSend"})),
            Library(
                "torch/lib/libc10_cuda.so",
                "torch",
                ("libcudart.so.13", "libnccl.so.2"),
                ("$ORIGIN/../../nvidia/cu13/lib", "$ORIGIN/../../nvidia/nccl/lib"),
                undefined=frozenset({"ncclSend"}),
                exported=frozenset({EXPORTED}),
            ),
            Library(
                KERNEL,
                "sglang-kernel",
                ("libc10_cuda.so", "libcudart.so.13", "libcuda.so.1"),
                undefined=frozenset({EXPORTED}),
                code=(Code("sass", 90), Code("sass", 120)),
            ),
            Library("tvm_ffi/lib/libtvm_ffi.so", "apache-tvm-ffi"),
        ),
        host=Host(
            driver="580.95.05",
            gpus=(Gpu("RTX PRO 6000", 120),),
            tools=(
                Tool("nvcc", "/usr/local/cuda/bin/nvcc", (13, 0)),
                Tool("cuda.h", "/usr/local/cuda/include/cuda.h", (13, 0)),
                Tool("ptxas", "/site/triton/backends/nvidia/bin/ptxas", (12, 8), bundled=True),
            ),
            cached=(Cached("/cache/sampling.so", ("libcudart.so.13",)),),
            shadows=("/usr/lib/libcublas.so.12",),
            system=frozenset({"libc.so.6"}),
        ),
        maps={7: f"7f00-7f01 r-xp 0 00:00 1 /site/{CUDART}\n7f02-7f03 r-xp 0 00:00 2 /site/{NCCL}\n"},
    )
    return dataclasses.replace(facts, **changes)


def version(facts: Facts, name: str, to: str | None) -> Facts:
    """The facts with another version of a package, or (None) without it."""
    kept = [one if one.name != name else dataclasses.replace(one, version=to or "") for one in facts.distributions]
    return dataclasses.replace(facts, distributions=tuple(one for one in kept if one.version))


def add(facts: Facts, *more: Distribution | Library) -> Facts:
    return dataclasses.replace(
        facts,
        distributions=(*facts.distributions, *(one for one in more if isinstance(one, Distribution))),
        libraries=(*facts.libraries, *(one for one in more if isinstance(one, Library))),
    )


def label(facts: Facts, name: str, to: str) -> Facts:
    return dataclasses.replace(facts, labels={**facts.labels, name: to})


def kernel(facts: Facts, **changes) -> Facts:
    libraries = [dataclasses.replace(one, **changes) if one.path == KERNEL else one for one in facts.libraries]
    return dataclasses.replace(facts, libraries=tuple(libraries))


def on(facts: Facts, **changes) -> Facts:
    assert facts.host is not None
    return dataclasses.replace(facts, host=dataclasses.replace(facts.host, **changes))


def state(facts: Facts, path: str, found: str) -> Facts:
    """The facts with a file of a RECORD missing, or of another size."""
    return dataclasses.replace(
        facts,
        distributions=tuple(
            dataclasses.replace(
                one,
                record=tuple(dataclasses.replace(e, found=found) if e.path == path else e for e in one.record or ()),
            )
            for one in facts.distributions
        ),
    )


def without(facts: Facts, path: str) -> Facts:
    return dataclasses.replace(facts, libraries=tuple(one for one in facts.libraries if one.path != path))


def the(facts: Facts, rule: str) -> Finding:
    """The only finding of a rule."""
    (one,) = [finding for finding in rules.examine(facts) if finding.rule == rule]
    return one


def test_a_healthy_environment_has_no_finding() -> None:
    assert rules.examine(healthy()) == ()


NVSHMEM = "nvidia/nvshmem/lib/libnvshmem_host.so.3"
CU12 = "nvidia/cuda_runtime/lib/libcudart.so.12"

#: What is broken in the healthy environment, the rule that has to see it, its severity, and words of consequence and remedy.
FAULTS: dict[str, tuple[Callable[[Facts], Facts], str, Severity, str, str]] = {
    "notebooks_331_torchaudio_of_another_cuda": (
        lambda facts: label(facts, "torchaudio", "2.11.0+cu128"),
        "R1",
        Severity.ERROR,
        "compiled with different CUDA versions. PyTorch has CUDA version 13.0 whereas TorchAudio has CUDA version 12.8",
        "torchaudio==2.11.0",
    ),
    "a_minor_difference_only_warns": (
        lambda facts: label(facts, "torchaudio", "2.11.0+cu132"),
        "R1",
        Severity.WARNING,
        "CUDA version 13.2",
        "torchaudio==2.11.0",
    ),
    "vllm_56829_torchvision_of_another_torch": (
        lambda facts: label(version(facts, "torchvision", "0.25.0"), "torchvision", "0.25.0+cu130"),
        "R9",
        Severity.ERROR,
        "operator torchvision::nms does not exist",
        "torchvision==0.26.0",
    ),
    "sglang_18203_kernel_needs_cudart_12": (
        lambda facts: kernel(facts, needed=("libcudart.so.12",)),
        "R2",
        Severity.ERROR,
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "sglang-kernel==0.4.2",
    ),
    "vllm_52300_kernel_of_cu13_beside_torch_cu12": (
        lambda facts: dataclasses.replace(
            label(without(facts, "torch/lib/libc10_cuda.so"), "torch", "2.11.0+cu128"), cuda="12.8"
        ),
        "R2",
        Severity.ERROR,
        "ImportError: libcudart.so.13: cannot open shared object file",
        "driver of branch 580",
    ),
    "sglang_16052_nvrtc_is_nowhere": (
        lambda facts: kernel(facts, needed=("libnvrtc.so.13",)),
        "R3",
        Severity.ERROR,
        "ImportError: libnvrtc.so.13: cannot open shared object file",
        "nvidia-cuda-nvrtc==13.0.88",
    ),
    "torch_without_its_nvidia_root": (
        lambda facts: without(facts, NCCL),
        "R3",
        Severity.ERROR,
        "ImportError: libnccl.so.2: cannot open shared object file",
        "nvidia-nccl-cu13==2.28.9",
    ),
    "kvcache_sglang_33_kernel_of_another_torch": (
        lambda facts: kernel(facts, undefined=frozenset({OLD})),
        "R4",
        Severity.ERROR,
        f"undefined symbol: {OLD}",
        "sglang-kernel==0.4.2",
    ),
    "sglang_36462_torch_library_symbol": (
        lambda facts: kernel(facts, undefined=frozenset({"_ZN5torch7Library4_defEON3c106eitherE"})),
        "R4",
        Severity.ERROR,
        "undefined symbol: _ZN5torch7Library4_def",
        "sglang-kernel==0.4.2",
    ),
    "an_nccl_symbol_that_this_nccl_has_not": (
        lambda facts: kernel(facts, needed=("libnccl.so.2",), undefined=frozenset({"ncclCommWindowRegister"})),
        "R4",
        Severity.ERROR,
        "undefined symbol: ncclCommWindowRegister",
        "nvidia-nccl-cu13",
    ),
    "sglang_31035_payload_of_a_package_is_gone": (
        lambda facts: state(add(facts, dist("nvidia-nvshmem-cu13", "3.4.5", files=(NVSHMEM,))), NVSHMEM, "missing"),
        "R5",
        Severity.ERROR,
        "ImportError: libnvshmem_host.so.3: cannot open shared object file",
        "nvidia-nvshmem-cu13==3.4.5",
    ),
    "nixl_1705_one_package_overwrote_another": (
        lambda facts: add(facts, dist("alpha", "1", files=("nixl/x.so",)), dist("beta", "1", files=("nixl/x.so",))),
        "R5",
        Severity.WARNING,
        "breaks the other",
        "only one of alpha, beta",
    ),
    "a_library_of_another_size": (
        lambda facts: state(facts, KERNEL, "size"),
        "R5",
        Severity.ERROR,
        "file too short",
        "sglang-kernel==0.4.2",
    ),
    "extras_gated_drift_that_pip_check_does_not_see": (
        lambda facts: version(facts, "nvidia-cuda-runtime", "12.8.90"),
        "R6",
        Severity.ERROR,
        "requires nvidia-cuda-runtime==13.0.*",
        "nvidia-cuda-runtime ==13.0.*",
    ),
    "sglang_25069_no_set_for_cuda_12": (
        lambda facts: add(facts, dist("cuda-bindings", "13.1.0"), dist("torch", "2.11.0+cu128", "cuda-bindings<13,>=12.9.4")),
        "R6",
        Severity.ERROR,
        "requires cuda-bindings<13,>=12.9.4",
        "sglang 0.5.11 has no set for CUDA 12",
    ),
    "sglang_17370_older_nccl_pulled_in": (
        lambda facts: version(facts, "nvidia-nccl-cu13", "2.27.7"),
        "R6",
        Severity.ERROR,
        "requires nvidia-nccl-cu13==2.28.9",
        "nvidia-nccl-cu13 ==2.28.9",
    ),
    "sglang_38515_no_code_for_the_gpu": (
        lambda facts: kernel(facts, code=(Code("sass", 90), Code("sass", 100))),
        "R7",
        Severity.ERROR,
        "no kernel image is available for execution on the device",
        "sm_120",
    ),
    "one_gpu_of_another_kind_in_the_group": (
        lambda facts: on(facts, gpus=(Gpu("RTX PRO 6000", 120), Gpu("A100", 80))),
        "R7",
        Severity.ERROR,
        "no kernel image is available",
        "sm_80",
    ),
    "funasr_2973_driver_570_under_cuda_13": (
        lambda facts: on(facts, driver="570.86.10"),
        "R8",
        Severity.ERROR,
        "The NVIDIA driver on your system is too old (found version 12080)",
        "branch 580",
    ),
    "flashinfer_4337_partial_upgrade": (
        lambda facts: version(facts, "flashinfer-cubin", "0.6.7"),
        "R9",
        Severity.ERROR,
        "flashinfer-cubin version (0.6.7) does not match flashinfer version (0.6.8.post1)",
        "flashinfer-cubin==0.6.8.post1",
    ),
    "ktransformers_2045_two_tvm_ffi": (
        lambda facts: add(facts, Library("tilelang/lib/libtvm_ffi.so", "tilelang")),
        "R9",
        Severity.WARNING,
        "TypeAttr __ffi_repr__ is already registered",
        "tilelang bundles",
    ),
    "sglang_22833_toolkit_of_another_major": (
        lambda facts: on(facts, tools=(Tool("nvcc", "/usr/local/cuda/bin/nvcc", (12, 8)),)),
        "R10",
        Severity.ERROR,
        "The detected CUDA version (12.8) mismatches the version that was used to compile PyTorch (13.0)",
        "CUDA toolkit 13.0",
    ),
    "flashinfer_3493_nvcc_and_headers_of_two_toolkits": (
        lambda facts: on(facts, tools=(Tool("nvcc", "/c/bin/nvcc", (13, 3)), Tool("cuda.h", "/c/include/cuda.h", (13, 0)))),
        "R10",
        Severity.WARNING,
        "headers are incompatible",
        "one toolkit 13.0",
    ),
    "triton_8539_ptxas_older_than_the_gpu": (
        lambda facts: on(kernel(facts, code=()), gpus=(Gpu("GB10", 121),)),
        "R10",
        Severity.ERROR,
        "Value 'sm_121' is not defined for option 'gpu-name'",
        "TRITON_PTXAS_PATH",
    ),
    "flashinfer_5145_cache_of_another_cuda": (
        lambda facts: on(facts, cached=(Cached("/cache/90/sampling.so", ("libcudart.so.12",)),)),
        "R11",
        Severity.ERROR,
        "cudaErrorInsufficientDriver (35)",
        "remove /cache/90",
    ),
    "a_cut_short_cache_entry": (
        lambda facts: on(facts, cached=(Cached("/cache/x/kernel.json", why="it is empty"),)),
        "R11",
        Severity.WARNING,
        "JSONDecodeError",
        "remove /cache/x",
    ),
    "pytorch_91067_system_library_shadows": (
        lambda facts: on(facts, shadows=("/usr/lib/libnccl.so.2",)),
        "R12",
        Severity.WARNING,
        "CUBLAS_STATUS_INVALID_VALUE",
        "LD_LIBRARY_PATH",
    ),
    "packages_from_outside_of_the_root": (
        lambda facts: on(facts, extra_sites=("/usr/lib/python3/dist-packages",)),
        "R12",
        Severity.WARNING,
        "is imported where the root has none",
        "PYTHONNOUSERSITE=1",
    ),
    "vllm_36099_both_cuda_majors_installed": (
        lambda facts: add(facts, dist("nvidia-cuda-runtime-cu12", "12.8.90", files=(CU12,))),
        "R13",
        Severity.WARNING,
        "two runtimes in one process",
        "without nvidia-cuda-runtime-cu12",
    ),
    "pytorch_178196_nvrtc_of_both_majors": (
        lambda facts: add(facts, dist("nvidia-cuda-nvrtc", "13.0.88"), dist("nvidia-cuda-nvrtc-cu12", "12.8.93")),
        "R13",
        Severity.WARNING,
        "two runtimes in one process",
        "without nvidia-cuda-nvrtc-cu12",
    ),
    "both_majors_in_the_same_files": (
        lambda facts: add(facts, Distribution("nvidia-nccl-cu12", "2.28.9", (), (Entry(NCCL, f"nvidia-nccl-cu13-{NCCL}", 1),))),
        "R13",
        Severity.ERROR,
        "in one process",
        "without nvidia-nccl-cu12",
    ),
    "two_runtimes_in_a_running_process": (
        lambda facts: dataclasses.replace(
            facts, maps={7: facts.maps[7] + "7f04-7f05 r-xp 0 00:00 3 /usr/local/cuda/lib64/libcudart.so.12.8.90\n"}
        ),
        "R14",
        Severity.ERROR,
        "CUDA error",
        "without LD_LIBRARY_PATH",
    ),
    "a_library_from_outside_in_a_running_process": (
        lambda facts: dataclasses.replace(facts, maps={7: "7f-8f r-xp 0 00:00 3 /usr/lib/libnccl.so.2\n"}),
        "R14",
        Severity.ERROR,
        "wrong NCCL",
        "without LD_LIBRARY_PATH",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault(fault: str) -> None:
    change, rule, severity, consequence, remedy = FAULTS[fault]
    one = the(change(healthy()), rule)
    assert one.severity is severity
    assert consequence in one.consequence
    assert remedy in one.remedy
    assert one.evidence and one.title


#: Public bugs that can be seen in facts, by thread; what only shows at run time (a hang in NCCL) is not here.
BUGS = (
    *("notebooks_331", "sglang_25069", "kvcache_sglang_33", "sglang_36462", "sglang_18203", "vllm_52300", "vllm_36099"),
    *("vllm_56829", "sglang_31035", "sglang_22833", "pytorch_178196", "sglang_16052", "sglang_17370", "flashinfer_5145"),
    *("flashinfer_3493", "flashinfer_4337", "triton_8539", "sglang_38515", "funasr_2973", "flash_attention_1644"),
    *("pytorch_91067", "ktransformers_2045", "nixl_1705", "extras_gated_drift"),
)


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_has_a_test_of_its_name(bug: str) -> None:
    assert any(bug in name for name in (*FAULTS, *globals()))


def test_every_rule_has_a_fault() -> None:
    assert {fault[1] for fault in FAULTS.values()} == {f"R{number}" for number in range(1, 15)}


def test_sglang_31035_even_where_the_library_alone_is_asked_for() -> None:
    facts = kernel(healthy(), needed=("libnvshmem_host.so.3",))
    assert "nvidia-nvshmem-cu13==3.4.5" in the(facts, "R3").remedy


def test_evidence_names_file_symbol_owner_and_the_nearest_export() -> None:
    (seen,) = the(kernel(healthy(), undefined=frozenset({OLD})), "R4").evidence
    assert (seen.file, seen.symbol, seen.owner) == (KERNEL, OLD, "sglang-kernel")
    assert seen.what.count("c10::cuda::c10_cuda_check_implementation") == 2


def test_flash_attention_1644_the_old_string_abi_is_told() -> None:
    symbol = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
    (seen,) = the(kernel(healthy(), undefined=frozenset({symbol})), "R4").evidence
    assert "_GLIBCXX_USE_CXX11_ABI" in seen.what


def test_same_sonames_in_both_majors_prove_nothing() -> None:
    facts = add(healthy(), Library("nvidia/cu13/lib/libcusparse.so.12", "nvidia-cusparse"))
    assert rules.examine(kernel(facts, needed=("libcusparse.so.12", "libnccl.so.2"))) == ()


def test_optional_plug_ins_are_notes() -> None:
    facts = add(healthy(), Library("torchcodec/libtorchcodec_core4.so", "torchcodec", ("libavutil.so.56",)))
    assert the(facts, "R3").severity is Severity.NOTE


def test_a_driver_within_the_major_only_warns() -> None:
    old = dataclasses.replace(label(healthy(), "torch", "2.11.0+cu128"), cuda="12.8")
    assert the(on(old, driver="550.54.14"), "R8").severity is Severity.WARNING


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [
        (Code("sass", 80), 86, True),
        (Code("sass", 86), 80, False),
        (Code("sass", 90), 100, False),
        (Code("sass", 120), 121, True),
        (Code("ptx", 90), 120, True),
        (Code("ptx", 120), 90, False),
    ],
)
def test_which_code_runs_where(code: Code, gpu: int, runs: bool) -> None:
    assert code.runs_on(gpu) is runs


def test_a_missing_file_of_another_major_is_told_once() -> None:
    assert [one.rule for one in rules.examine(kernel(healthy(), needed=("libcudart.so.12",)))] == ["R2"]


def test_a_package_without_any_of_its_files_is_called_hollow() -> None:
    facts = add(healthy(), dist("alpha", "1.0", files=("alpha/__init__.py", "alpha/b.py")))
    gone = state(state(facts, "alpha/__init__.py", "missing"), "alpha/b.py", "missing")
    assert the(gone, "R5").severity is Severity.ERROR and "hollow" in the(gone, "R5").title
    partly = the(state(facts, "alpha/b.py", "missing"), "R5")
    assert partly.severity is Severity.WARNING and partly.title == "1 of the 2 files of alpha 1.0 are missing"


def test_packages_may_share_a_file_of_the_same_bytes() -> None:
    one, other = (Distribution(name, "1", (), (Entry("shared/__init__.py", "same", 0),)) for name in ("alpha", "beta"))
    assert rules.examine(add(healthy(), one, other)) == ()


def test_the_systems_toolkit_in_the_linkers_cache_is_a_note() -> None:
    assert the(on(healthy(), fallbacks=("/usr/local/cuda/lib64/libcudart.so.13",)), "R12").severity is Severity.NOTE


def test_tritons_second_ptxas_serves_new_gpus() -> None:
    tools = (Tool("ptxas", "ptxas", (12, 8), bundled=True), Tool("ptxas", "ptxas-blackwell", (12, 9), bundled=True))
    assert rules.examine(on(kernel(healthy(), code=()), gpus=(Gpu("GB10", 121),), tools=tools)) == ()


def test_the_nearest_export_is_the_one_most_alike() -> None:
    symbol, near, far = "_ZN3c101fEi", "_ZN3c101fEj", "_ZN3c101fEPKcRKNS_6DeviceE"
    assert siblings([symbol], [far, near, "_ZN3c101gEi"]) == {symbol: near}


def test_a_package_that_brings_a_file_for_each_cuda_and_torch_loads_the_one_that_fits() -> None:
    """torch-memory-saver 0.0.10 and torch-c-dlpack-ext 0.1.5, both of them needed by sglang 0.5.11."""
    hooks = [
        Library(f"hook{kind}.abi3.so", "saver", (f"libcudart.so.{major}",))
        for kind, major in (("", 12), ("_cu12", 12), ("_cu13", 13))
    ]
    addons = [
        Library(f"ext/libaddon_torch{torch}-cuda.so", "ext", undefined=frozenset({symbol}))
        for torch, symbol in ((24, OLD), (211, EXPORTED))
    ]
    assert rules.examine(add(healthy(), *hooks, *addons)) == ()
    assert the(add(healthy(), *hooks[:2]), "R2").evidence
    assert the(add(healthy(), addons[0]), "R4").evidence


def test_a_file_that_is_named_for_its_gpu_is_no_gap() -> None:
    code = (Code("sass", 90),)
    assert rules.examine(add(healthy(), Library("torchao/_C_cutlass_90a.abi3.so", "torchao", code=code))) == ()
    assert the(add(healthy(), Library("torchao/_C.abi3.so", "torchao", code=code)), "R7").severity is Severity.WARNING


def test_a_private_copy_of_a_wheel_is_no_second_runtime() -> None:
    facts = healthy()
    private = "7f04-7f05 r-xp 0 00:00 3 /site/torchvision.libs/libcudart.faf08d9a.so.13\n"
    assert rules.examine(dataclasses.replace(facts, maps={7: facts.maps[7] + private})) == ()


def test_torchcodec_of_pypi_is_a_cpu_build_and_torchvision_is_not() -> None:
    facts = add(healthy(), dist("torchcodec", "0.11.1"))
    assert rules.examine(label(facts, "torchcodec", "0.11.1+cpu")) == ()
    assert the(label(facts, "torchvision", "0.26.0+cpu"), "R1").severity is Severity.ERROR
