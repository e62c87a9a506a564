"""The lock: whole, pinned by hash, silent about where wheels come from; the site is the lock and nothing else."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import overlay.site
from overlay import lock, pip, profiles
from tools.cli import UserError

CPU = profiles.load("cpu")
PINS = {canonicalize_name(pin.name): pin for pin in lock.read(CPU.lock)}


def test_every_line_is_a_pin_with_its_hash_and_nothing_else() -> None:
    lines = [line for line in CPU.lock.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(PINS)
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


@pytest.mark.parametrize("file", [CPU.lock, CPU.lock.with_suffix(".toml")], ids=lambda file: file.name)
def test_no_address_and_no_path(file: Path) -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links|file:|(^|\s)/\w", file.read_text(), re.MULTILINE)


def test_the_requirements_are_locked_as_they_are() -> None:
    for text in CPU.requirements:
        requirement = Requirement(text)
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)].version), text


def test_the_lock_is_closed_and_the_site_holds_it_exactly() -> None:
    """Each installed package's own requirements, read from its metadata, are in the lock in a version that it takes."""
    distributions = list(importlib.metadata.distributions(path=[str(overlay.site.build().root)]))
    assert {canonicalize_name(one.name): one.version for one in distributions} == {
        name: pin.version for name, pin in PINS.items()
    }
    environment = {"extra": "", "python_version": CPU.python, "python_full_version": f"{CPU.python}.0"}
    for one in distributions:
        for text in one.requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate(environment):
                pin = PINS.get(canonicalize_name(wanted.name))
                assert pin is not None, f"{one.name} wants {text}"
                assert wanted.specifier.contains(pin.version, prereleases=True), f"{one.name} wants {text}, not {pin}"


def test_nothing_of_cuda_is_in_it() -> None:
    assert PINS["torch"].version.endswith("+cpu")
    assert not [name for name in PINS if name.startswith(("nvidia-", "cuda-"))]


def test_a_line_that_is_no_pin_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cpu.lock"
    file.write_text(f"# comment\n{PINS['torch']}\ntorchvision==0.28.0\n")
    with pytest.raises(UserError, match=r"cpu\.lock:3: not a pin"):
        lock.read(file)


def test_a_missing_cpu_wheel_says_which_index_to_add() -> None:
    stderr = (
        "ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu (from versions: 2.13.0)\n"
        "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
    )
    message = str(pip.failure(stderr, CPU))
    assert message.startswith("pip does not find torch==2.13.0+cpu: add PyTorch's index of CPU wheels to pip")
    assert "PIP_EXTRA_INDEX_URL" in message
