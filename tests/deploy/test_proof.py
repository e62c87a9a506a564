"""What counts as proved, as a function of what was read from a server."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
from pathlib import Path

import pytest

from deploy import mapped, proof
from deploy.manifest import Manifest
from deploy.proof import Attested
from deploy.slot import single
from tests.overlay.elfwriter import library

RUNNER = "sglang.srt.model_executor.model_runner"
SITE = Path("/r/site")
SLOT = single(30000)
FILES = {"sglang/srt/model_executor/model_runner.py": "aa", "sglang/server.py": "bb", "sglang/unused.py": "cc"}
MANIFEST = Manifest(
    release="r1",
    version="0.5.11",
    algorithm="DDTREE",
    budget=22,
    model="m",
    slots=(SLOT,),
    inputs={},
    files=FILES,
    touched={"sglang/server.py": "bb", "sglang/unused.py": "cc"},
    linked=0,
)
SERVER = {"version": "0.5.11", "tp_size": 1, "speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 22}


def process(pid: int, **modules: tuple[str, str]) -> Attested:
    return Attested(pid, {name.replace("__", "."): value for name, value in modules.items()})


def worker(pid: int = 2, sha: str = "aa", site: Path = SITE) -> Attested:
    return Attested(pid, {RUNNER: (f"{site}/sglang/srt/model_executor/model_runner.py", sha)})


def main(sha: str = "bb") -> Attested:
    return Attested(1, {"sglang.server": (f"{SITE}/sglang/server.py", sha)})


def test_a_server_of_this_release() -> None:
    assert proof.identity(MANIFEST, SLOT, SERVER, {"weight_version": "r1"}) == []
    judged = proof.loaded(MANIFEST, SLOT, SITE, (main(), worker(), Attested(3, {})))
    assert judged == proof.Proof((), processes=2, modules=2, touched=1)


@pytest.mark.parametrize(
    ("server", "model", "said"),
    [
        ({}, "r0", "release (weight version): expected r1, the server says r0"),
        ({"version": "0.5.12"}, "r1", "SGLang version: expected 0.5.11, the server says 0.5.12"),
        ({"speculative_algorithm": "DFLASH"}, "r1", "algorithm: expected DDTREE, the server says DFLASH"),
        ({"speculative_ddtree_budget": 15}, "r1", "tree budget: expected 22, the server says 15"),
        ({"tp_size": 2}, "r1", "tensor parallel size: expected 1, the server says 2"),
    ],
)
def test_a_server_that_says_otherwise(server: dict, model: str, said: str) -> None:
    assert proof.identity(MANIFEST, SLOT, {**SERVER, **server}, {"weight_version": model}) == [said]


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ((main("xx"), worker()), "process 1 loaded sglang/server.py with other bytes than the release has (xx)"),
        ((main(), worker(site=Path("/elsewhere"))), "outside the release"),
        ((main(),), "0 live processes have attested that they run the model, expected 1"),
        ((main(), worker(2), worker(3)), "2 live processes have attested"),
        ((worker(),), "no file of the series is loaded: the patches have no effect"),
        ((), "0 live processes"),
    ],
)
def test_code_that_is_not_the_release(processes: tuple[Attested, ...], said: str) -> None:
    assert said in proof.sentence(proof.loaded(MANIFEST, SLOT, SITE, processes).findings)


CUDA = (f"{SITE}/nvidia/cu13/lib/libcudart.so.13", f"{SITE}/nvidia/nccl/lib/libnccl.so.2")
BASE = ("/venv/site-packages/nvidia/cu13/lib/libcudart.so.13", "/venv/site-packages/nvidia/nccl/lib/libnccl.so.2")


@pytest.mark.parametrize(
    ("scope", "files", "said"),
    [
        ("full", CUDA, None),
        ("full", (), None),
        ("full", (*CUDA, f"{SITE}/torchvision.libs/libcudart.faf08d9a.so.13", f"{SITE}/nvidia/cu13/lib/libcublasLt.so.13"), None),
        ("full", (*CUDA, "/usr/local/cuda/lib64/libcudart.so.12"), "process 2 has 2 copies of libcudart loaded"),
        ("full", (CUDA[0], BASE[1]), f"process 2 loaded {BASE[1]} outside the release"),
        ("abi", BASE, "outside the release"),
        ("code", BASE, None),
        ("code", (BASE[0], "/usr/lib/libnccl.so.2.27.7"), "from different environments"),
        ("code", (*BASE, "/usr/local/cuda/lib64/libcudart.so.12"), "2 copies of libcudart"),
    ],
)
def test_one_cuda_in_each_process(scope: str, files: tuple[str, ...], said: str | None) -> None:
    wanted, rank = dataclasses.replace(MANIFEST, scope=scope), dataclasses.replace(worker(), libraries=files)
    found = proof.loaded(wanted, SLOT, SITE, (main(), rank)).findings
    assert said in proof.sentence(found) if said else found == ()


def test_what_a_process_has_mapped_is_read_from_the_kernel(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for name in ("libcudart.so.13", "libnccl.so.2", "libcublasLt.so.13"):
            file = stack.enter_context(open(library(tmp_path / name), "rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        assert mapped.read(os.getpid()) == (f"{tmp_path}/libcudart.so.13", f"{tmp_path}/libnccl.so.2")
    assert mapped.read(0) == ()


def test_an_empty_series_needs_no_patched_file() -> None:
    plain = dataclasses.replace(MANIFEST, touched={})
    assert proof.loaded(plain, SLOT, SITE, (worker(),)).findings == ()


def test_a_record_that_is_being_written_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "7.jsonl").write_text('{"pid": 7}\n{"module": "sglang", "file": "f", "sha256": "s"}\n{"module": "sgl')
    assert proof.read_attested(tmp_path / "7.jsonl") == Attested(7, {"sglang": ("f", "s")})
