"""Real kernel wheels against the exports of real torch builds: what the doctor predicts is what was met in public.

sglang-kernel 0.4.2 is downloaded once by the cu130 lock's hash (326 MB) and kept. Of sgl_kernel 0.3.21 (536 MB) the
fixture has what the linker sees: NEEDED, torch's symbols and GPU code, as the doctor read them from the wheel of that hash.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from overlay import lock, profiles, wheelhouse
from overlay.doctor import known
from tests.overlay.elfwriter import library
from tools.paths import REPO

OLD = json.loads((REPO / "tests/fixtures/kernels/sgl_kernel-0.3.21.json").read_text())


@pytest.fixture(scope="module")
def wheels() -> Path:
    """A folder with the wheel of sglang-kernel 0.4.2 and nothing else."""
    profile = profiles.load("cu130", "3.11")
    (pin,) = [pin for pin in lock.read(profile.lock) if pin.name == "sglang-kernel"]
    (wheel,) = wheelhouse.fetch(profile, [pin])
    return wheel.parent


def _findings(path: Path, *options: str) -> tuple[int, list[dict]]:
    command = [sys.executable, "-m", "overlay", "doctor", str(path), "--json", *options]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["findings"]


def test_the_kernels_of_0_4_2_fit_torch_2_11_and_the_doctor_says_which_backends_an_rtx_pro_6000_has_not(wheels: Path) -> None:
    code, found = _findings(wheels, "--torch", "2.11.0+cu130", "--gpu", "sm_120")
    assert code == 0
    ruled_out = {
        one["evidence"][0]["file"]: one["title"].rsplit(" ", 1)[-1] for one in found if "attention backend" in one["title"]
    }
    assert ruled_out == {"sgl_kernel/flash_ops.abi3.so": "fa3", "sgl_kernel/flashmla_ops.abi3.so": "flashmla"}
    flash = next(one for one in found if one["title"].endswith("fa3"))
    assert flash["evidence"][0]["what"] == "code for sm_80, sm_86, sm_90"
    assert "--attention-backend flashinfer" in flash["remedy"]
    assert {one["rule"] for one in found} == {"R7"}
    assert not any("common_ops" in evidence["file"] for one in found for evidence in one["evidence"])


def test_the_kernels_of_0_4_2_miss_symbols_of_torch_2_13(wheels: Path) -> None:
    code, found = _findings(wheels, "--torch", "2.13.0+cpu")
    assert code == 1
    (one,) = [one for one in found if one["rule"] == "R4"]
    # The exports are of the CPU build, which never had what is CUDA's: only the rest tells the two versions apart.
    missing = {seen["symbol"] for seen in one["evidence"] if "cuda" not in seen["symbol"].lower()}
    assert "_ZN3c104impl3cow23materialize_cow_storageERNS_11StorageImplE" in missing
    assert any("const_data_ptr" in symbol for symbol in missing)
    assert missing.isdisjoint(known.exports("2.13.0+cpu")) and missing <= known.exports("2.11.0+cu130")


@pytest.fixture
def old_kernels(tmp_path: Path) -> Path:
    """A site root with libraries as the wheel of sgl_kernel 0.3.21 has them."""
    info = tmp_path / "sgl_kernel-0.3.21.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sgl-kernel\nVersion: 0.3.21\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in OLD["libraries"]))
    for path, one in OLD["libraries"].items():
        library(tmp_path / path, needed=one["needed"], undefined=one["undefined"], code=map(tuple, one["code"]))
    return tmp_path


def test_the_kernels_of_0_3_21_miss_exactly_the_symbols_of_the_public_bug_and_cudart_12(old_kernels: Path) -> None:
    code, found = _findings(old_kernels, "--torch", "2.11.0+cu130", "--no-host")
    assert code == 1
    (symbols,) = [one for one in found if one["rule"] == "R4"]
    assert {seen["symbol"] for seen in symbols["evidence"]} == {
        "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
        "_ZN3c1013MessageLoggerC1EPKcii",
    }
    assert symbols["severity"] == "error" and symbols["evidence"][0]["owner"] == "sgl-kernel"
    (runtime,) = [one for one in found if one["rule"] == "R2"]
    assert "libcudart.so.12: cannot open shared object file" in runtime["consequence"]
    assert {seen["file"] for seen in runtime["evidence"] if "libcudart.so.12" in seen["what"]} == set(OLD["libraries"])
    assert "sglang-kernel==0.4.2 instead of sgl-kernel" in runtime["remedy"]
