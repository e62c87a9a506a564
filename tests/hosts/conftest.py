"""Fresh real hosts for each test, in a network of their own; they need root, and what `.ci/run` installs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.machines import Machine, Site
from tools.paths import STORE


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    assert os.geteuid() == 0, "tests/hosts need root: they start systemd in containers"
    with Site() as made:
        yield made


@pytest.fixture
def fresh(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Machine]]:
    """Makes hosts: `fresh("ct200")`. The test runs in their network, and its ~/.ssh knows them by name."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(STORE.parent))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made: list[Machine] = []

    def make(name: str = "ct200", **how: object) -> Machine:
        host = site.host(name, **how)
        made.append(host)
        with open(home / ".ssh/config", "a") as config, open(home / ".ssh/known_hosts", "a") as known:
            config.write(f"Host {name}\n  HostName {host.address}\n  User root\n  IdentityFile {site.key}\n")
            known.write(host.known_hosts)
        return host

    with site.entered():
        yield make
    for host in made:
        host.remove()
