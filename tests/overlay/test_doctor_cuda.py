"""The doctor on PyPI's own torch 2.11.0, for CUDA 13.0, with all that it needs: real wheels, and no false alarm.

The wheels (2.6 GB) are fetched once by the hashes of the cu130 lock, unpacked (5 GB), and kept for every clone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from overlay import lock, profiles, wheelhouse
from overlay.doctor import rules, tree
from overlay.doctor.facts import Facts, Gpu, Host
from overlay.doctor.finding import Severity

#: What an installer takes for `torch==2.11.0` alone; that it is whole is what the doctor is asked.
TORCH = (
    *("torch", "triton", "cuda-toolkit", "cuda-bindings", "cuda-pathfinder", "filelock", "fsspec", "jinja2", "markupsafe"),
    *("mpmath", "networkx", "setuptools", "sympy", "typing-extensions", "nvidia-cublas", "nvidia-cuda-cupti"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-cufile", "nvidia-curand"),
    *("nvidia-cusolver", "nvidia-cusparse", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13", "nvidia-nvjitlink"),
    *("nvidia-nvshmem-cu13", "nvidia-nvtx"),
)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    """Facts of a site root with torch and its requirements, as if on an RTX PRO 6000 with a new driver."""
    pins = [pin for pin in lock.read(profiles.load("cu130", "3.11").lock) if pin.name in TORCH]
    made = tmp_path_factory.mktemp("profiles")
    (made / "torch.lock").write_text("".join(f"{pin}\n" for pin in pins))
    (made / "torch.toml").write_text(
        'name = "torch"\npython = "3.11"\nplatform = "linux x86_64"\npip = "PyPI"\nrequirements = ["torch==2.11.0"]\n'
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(profiles, "PROFILES", made)
        root: Path = wheelhouse.build("torch").root
    yield tree.read(root)


def test_pypis_torch_2_11_is_built_for_cuda_13(facts: Facts) -> None:
    assert (facts.version("torch"), facts.cuda) == ("2.11.0+cu130", "13.0")
    assert next(one.version for one in facts.distributions if one.name == "torch") == "2.11.0", "its metadata does not say so"


def test_no_alarm_on_torch_as_pypi_has_it(facts: Facts) -> None:
    host = Host(driver="580.95.05", gpus=(Gpu("RTX PRO 6000", 120), Gpu("H100", 90)))
    found = rules.examine(dataclasses.replace(facts, host=host))
    assert [one.title for one in found if one.severity is not Severity.NOTE] == []
    assert len(facts.distributions) == len(TORCH) and len(facts.libraries) > 80


def test_an_older_driver_is_the_only_error_on_it(facts: Facts) -> None:
    found = rules.examine(dataclasses.replace(facts, host=Host(driver="570.86.10")))
    assert [one.rule for one in found if one.severity is Severity.ERROR] == ["R8"]
