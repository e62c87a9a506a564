"""The wait for freed GPU memory, against an nvidia-smi that answers what a file says, look after look."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy import vram

SMI = """#!/bin/sh
# Says the first line of the GPU's file and takes it away, but for the last one.
for word; do case $word in --id=*) file={folder}/${{word#--id=}};; esac; done
head -n 1 "$file" || exit 15
[ "$(wc -l < "$file")" -gt 1 ] && sed -i 1d "$file"
echo >> {folder}/asked
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what it says, one file a GPU."""
    (tmp_path / "nvidia-smi").write_text(SMI.format(folder=tmp_path))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(vram, "PAUSE", 0.01)
    return tmp_path


def test_it_waits_until_the_memory_falls(smi: Path) -> None:
    (smi / "0").write_text("81000\n81000\n40000\n3\n")
    (smi / "1").write_text("4\n")
    vram.wait((0, 1))
    assert (smi / "0").read_text() == "3\n"


def test_what_stays_is_anothers_and_is_not_waited_for(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vram, "STILL", 0.2)
    (smi / "0").write_text("81000\n20000\n")
    vram.wait((0,))
    assert (smi / "0").read_text() == "20000\n" and len((smi / "asked").read_text()) > 2


def test_it_ends_even_while_the_memory_changes(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vram, "LONGEST", 0.3)
    (smi / "0").write_text("".join(f"{used}\n" for used in range(90000, 80000, -1)))
    vram.wait((0,))
    assert len((smi / "0").read_text().splitlines()) > 2


def test_a_dead_gpu_or_no_nvidia_smi_is_not_waited_for(smi: Path) -> None:
    vram.wait((7,))
    (smi / "nvidia-smi").unlink()
    vram.wait((0,))
    vram.wait(())
