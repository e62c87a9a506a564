"""Inputs that did not change are not examined again, and whatever changed is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deploy import inputs, inventory, kept
from overlay.doctor import gate
from tests.overlay import trees
from tools.cli import UserError
from tools.paths import REPO, VERSION

_watched: list[str] | None = None


def _hook(event: str, args: tuple) -> None:
    if _watched is not None and event == "open" and isinstance(args[0], str):
        _watched.append(args[0])


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own for what is kept."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "passed")
    return tmp_path / "passed"


def opened_by(do: object) -> list[str]:
    """Every path that Python opens meanwhile, in this thread or another."""
    global _watched
    if not getattr(_hook, "added", False):
        sys.addaudithook(_hook)
        _hook.added = True
    _watched = []
    try:
        do()
        return _watched
    finally:
        _watched = None


def test_a_second_gathering_opens_no_file_of_tree_pin_or_overlay(passed: Path) -> None:
    entry = inventory.load("sandbox")
    first = inputs.gather(entry)
    again = []
    opened = opened_by(lambda: again.append(inputs.gather(entry)))
    assert again[0].release == first.release and again[0] == first
    heavy = [str(root) for root in (first.site, first.tree / "sglang", REPO / ".cache/snapshot" / VERSION / "sglang")]
    # Which CUDA the compilers are of is the machine's facts, which are read each time.
    assert opened and not [path for path in opened if path.startswith(tuple(heavy)) and "/bin/ptxas" not in path]
    (passed / "series").unlink()
    assert any(path.startswith(heavy[2]) for path in opened_by(lambda: inputs.gather(entry))), "the oracle sees a check"


def test_what_the_doctor_judges_makes_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = trees.tree(tmp_path / "site", 13)
    keys = [gate.key(site)]
    assert gate.key(site) == keys[0]
    file = next(path for path in site.rglob("*") if path.is_file() and path.stat().st_size)
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    keys.append(gate.key(site))
    (site / "more.so").write_bytes(b"")
    keys.append(gate.key(site))
    (site / "more.so").unlink()
    monkeypatch.setattr(gate.host, "_gpus", lambda: ("570.86", ()))
    keys.append(gate.key(site))
    assert len(set(keys)) == 4


def test_another_pinned_version_is_checked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The series of both can lie side by side, so their files are the same before and after."""
    before = inputs._series_key()
    monkeypatch.setattr(inputs, "VERSION", "0.0.0")
    assert inputs._series_key() != before


def test_only_a_good_verdict_is_kept(passed: Path) -> None:
    runs = []

    def check() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise UserError("it is bad")

    for _ in range(2):
        with pytest.raises(UserError):
            kept.once("x", "key", check)
    kept.once("x", "key", check)
    kept.once("x", "key", check)
    assert len(runs) == 3
    kept.once("x", "another key", check)
    assert len(runs) == 4
