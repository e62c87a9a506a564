"""The real wheel, in a cache of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snapshot import __main__ as cli
from snapshot import host, manifest, tree, wheel


@pytest.fixture(scope="session")
def pin() -> manifest.Manifest:
    return manifest.load()


@pytest.fixture(scope="session")
def real_wheel(pin: manifest.Manifest) -> Path:
    """The pinned wheel in the checkout's cache; the first test run of a clone fetches it."""
    return wheel.fetch(pin)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_wheel: Path) -> Path:
    """An empty cache but for the wheel."""
    place = tmp_path / "cache"
    (place / "snapshot").mkdir(parents=True)
    os.link(real_wheel, place / "snapshot" / real_wheel.name)
    for module in (cli, host, tree, wheel):
        monkeypatch.setattr(module, "CACHE", place)
    return place


def overwrite(file: Path, data: bytes) -> None:
    """Give a file other bytes without writing through its hard links."""
    file.unlink()
    file.write_bytes(data)
