"""The parts that stand in for a GPU's: the sgl_kernel ops against brute force, the others against SGLang's own kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import overlay.site
import snapshot.tree
from overlay.engine import environment

CHECKS = Path(__file__).with_name("checks")


def _run(script: str, *roots: Path) -> str:
    """What a script prints, run on the CPU engine's Python; its traceback if it fails."""
    site = overlay.site.build()
    done = subprocess.run(
        [site.python, CHECKS / script], env=environment(*roots, site.root), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_sgl_kernel_ops_equal_brute_force() -> None:
    assert len(_run("kernels.py").splitlines()) == 4


def test_reference_attention_equals_sglangs_kernel() -> None:
    assert len(_run("attention.py", snapshot.tree.pristine()).splitlines()) == 6


def test_gated_delta_net_under_trees_equals_sglangs_kernels() -> None:
    assert len(_run("gated_delta_net.py", snapshot.tree.pristine()).splitlines()) == 5


def test_a_callers_variables_do_not_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "SGLANG_ENABLE_SPEC_V2", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "HF_TOKEN"):
        monkeypatch.setenv(name, "mine")
    assert "mine" not in environment().values()


def test_an_attention_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'flash': expected 'ref' or 'triton'"):
        environment(attention="flash")
