"""The hook in a release: it hashes what runs, in every process, together with the CPU overlay's own hook."""

from __future__ import annotations

import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import proof
from deploy.inputs import HOOK

REWRITES = """
import sys
from cpu_engine.rewriting import Importer, Rewrite
sys.meta_path.insert(0, Importer([Rewrite(module="sglang.rewritten", old="WORD = 'cuda'", new="WORD = 'cpu'", reason="a test")]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A release's import root, with the overlay's real importer and a package of a few lines."""
    root = tmp_path / "site"
    shutil.copytree(HOOK, root, ignore=shutil.ignore_patterns("__pycache__"))
    overlay = Path(__file__).parents[2] / "overlay" / "cpu" / "cpu_engine"
    shutil.copytree(overlay, root / "cpu_engine")
    (root / "overlay_startup.py").write_text(REWRITES)
    (root / "sglang").mkdir()
    for name, text in {"__init__": "", "plain": "WORD = 'plain'\n", "rewritten": "WORD = 'cuda'\n", "unused": ""}.items():
        (root / "sglang" / f"{name}.py").write_text(text)
    (tmp_path / "attest").mkdir()
    return root


def run(site: Path, code: str) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "SGLANG_ATTEST_DIR": str(site.parent / "attest")}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def attested(site: Path) -> list[proof.Attested]:
    return [proof.read_attested(file) for file in sorted((site.parent / "attest").iterdir())]


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_loaded_is_recorded_also_when_the_overlay_rewrites_it(site: Path) -> None:
    code = "import json, sglang.plain, sglang.rewritten; print(sglang.plain.WORD, sglang.rewritten.WORD)"
    assert run(site, code) == "plain cpu", "the overlay's rewrite holds under the hook"
    (record,) = attested(site)
    names = {"sglang": "__init__", "sglang.plain": "plain", "sglang.rewritten": "rewritten"}
    assert record.modules == {
        module: (str(site / "sglang" / f"{file}.py"), sha(site / "sglang" / f"{file}.py")) for module, file in names.items()
    }


def test_stale_byte_code_is_not_run(site: Path) -> None:
    source = site / "sglang" / "plain.py"
    before = source.stat()
    py_compile.compile(str(source), doraise=True)
    source.write_text("WORD = 'other'\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: Python would trust the cache
    assert run(site, "import sglang.plain; print(sglang.plain.WORD)") == "other"
    assert attested(site)[0].modules["sglang.plain"][1] == sha(source)


def test_spawned_and_forked_processes_attest_for_themselves(site: Path) -> None:
    code = """
import os, subprocess, sys
import sglang
subprocess.run([sys.executable, "-c", "import sglang.plain"], check=True)
if os.fork() == 0:
    import sglang.rewritten
    os._exit(0)
os.wait()
"""
    run(site, code)
    assert sorted(sorted(record.modules) for record in attested(site)) == [
        ["sglang"],
        ["sglang", "sglang.plain"],
        ["sglang.rewritten"],
    ]


def test_nothing_is_recorded_where_no_folder_is_named(site: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
    subprocess.run([sys.executable, "-c", "import sglang.plain"], env=env, timeout=60, check=True)
    assert attested(site) == []


def test_a_release_without_an_overlay_of_its_own_starts_too(site: Path) -> None:
    (site / "overlay_startup.py").unlink()
    assert run(site, "import sglang.plain; print(sglang.plain.WORD)") == "plain"


def test_a_process_whose_start_up_fails_does_not_run(site: Path) -> None:
    (site / "overlay_startup.py").write_text("import a_module_that_is_missing\n")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
    argv = [sys.executable, "-c", "print('ran')"]
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (70, "")
    assert "No module named 'a_module_that_is_missing'" in ended.stderr
