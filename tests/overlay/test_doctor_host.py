"""What the machine adds: compilers are read and never run, caches and search paths come from the service's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overlay.doctor import host, rules
from overlay.doctor.facts import Facts, Gpu
from tests.overlay.elfwriter import library
from tools.paths import REPO


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A host without GPU programs: a root with triton's compilers, a toolkit, caches."""
    for name, release in (("ptxas", "12.8, V12.8.93"), ("ptxas-blackwell", "12.9, V12.9.86")):
        _program(tmp_path / "site-packages/triton/backends/nvidia/bin" / name, release)
    _program(tmp_path / "cuda/bin/nvcc", "13.0, V13.0.88")
    (tmp_path / "cuda/include").mkdir()
    (tmp_path / "cuda/include/cuda.h").write_text("#pragma once\n#define CUDA_VERSION 13000\n")
    return tmp_path


def _program(path: Path, release: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF\0release %d.%d\0Cuda compilation tools, release " + release.encode() + b"\0")


def _environment(world: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(world), "PATH": "", "USER": "nobody-there", **more}


def test_compilers_are_read_from_their_bytes(world: Path) -> None:
    found = host.read(world / "site-packages", _environment(world, CUDA_HOME=str(world / "cuda")))
    assert [(tool.name, tool.version, tool.bundled) for tool in found.tools] == [
        ("nvcc", (13, 0), False),
        ("cuda.h", (13, 0), False),
        ("ptxas", (12, 8), True),
        ("ptxas", (12, 9), True),
    ]


def test_a_ptxas_that_is_named_takes_the_place_of_tritons(world: Path) -> None:
    named = world / "other/ptxas"
    _program(named, "13.0, V13.0.88")
    found = host.read(world / "site-packages", _environment(world, TRITON_PTXAS_PATH=str(named)))
    assert [(tool.path, tool.version) for tool in found.tools] == [(str(named), (13, 0))]


def test_caches_are_where_the_environment_says(world: Path) -> None:
    library(world / ".cache/flashinfer/0.6.8/120/sampling.so", needed=("libcudart.so.12",))
    (world / "triton/x").mkdir(parents=True)
    (world / "triton/x/empty.json").touch()
    (world / "triton/x/cut.json").write_text('{"a": ')
    (world / "triton/x/whole.json").write_text("{}")
    (world / ".cache/flashinfer/zeros.so").write_bytes(bytes(100))
    found = host.read(world / "site-packages", _environment(world, TRITON_CACHE_DIR=str(world / "triton")))
    seen = {Path(one.path).name: one.why or one.needed for one in found.cached}
    assert seen == {
        "sampling.so": ("libcudart.so.12",),
        "zeros.so": "it does not begin as a library does (zeros)",
        "empty.json": "it is empty",
        "cut.json": "its JSON is cut short",
    }


def test_cuda_libraries_on_the_library_path_are_found(world: Path) -> None:
    library(world / "old/libnccl.so.2")
    library(world / "old/libother.so.2")
    found = host.read(world / "site-packages", _environment(world, LD_LIBRARY_PATH=f"{world / 'old'}:/nonexistent:"))
    assert str(world / "old/libnccl.so.2") in found.shadows
    assert not any("libother" in path for path in found.shadows)


def test_gpus_are_read_from_nvidia_smi() -> None:
    text = "580.95.05, 12.0, NVIDIA RTX PRO 6000 Blackwell\n580.95.05, 8.0, NVIDIA A100-SXM4-80GB\n"
    expected = (Gpu("NVIDIA RTX PRO 6000 Blackwell", 120), Gpu("NVIDIA A100-SXM4-80GB", 80))
    assert host.gpus_of(text) == ("580.95.05", expected)
    assert host.gpus_of("NVIDIA-SMI has failed because it couldn't communicate with the driver") == (None, ())


def test_a_venv_that_sees_the_systems_packages_is_told(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    system = tmp_path / "usr/lib/python3.11/site-packages"
    for folder in (site, system, tmp_path / "usr/bin"):
        folder.mkdir(parents=True)
    settings = tmp_path / "venv/pyvenv.cfg"
    settings.write_text(f"home = {tmp_path}/usr/bin\ninclude-system-site-packages = true\n")
    assert host.read(site, _environment(tmp_path)).extra_sites == (str(system),)
    settings.write_text(f"home = {tmp_path}/usr/bin\ninclude-system-site-packages = false\n")
    assert host.read(site, _environment(tmp_path)).extra_sites == ()


def test_a_process_is_looked_at_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "alpha-1.0.dist-info").mkdir()
    command = [sys.executable, "-m", "overlay", "doctor", str(tmp_path), "--pid"]
    done = subprocess.run([*command, str(os.getpid())], cwd=REPO, capture_output=True, text=True)
    assert "R14" not in done.stdout and not done.stderr
    done = subprocess.run([*command, "999999999"], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: process 999999999 can't be looked at")


def test_a_host_without_anything_is_no_finding(world: Path) -> None:
    facts = Facts("tree", str(world), host=host.read(world / "nothing", _environment(world)))
    assert rules.examine(facts) == ()
