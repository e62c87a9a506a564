"""What every test run shares: an option that makes a skipped test a failure, the order, and a real SSH server.

CI passes `--no-skips`: a run that left something out must not look like a run that proved it.

With `-n` a file's tests run in one process, since they share engines, and all that use real hosts run in one too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

import snapshot.tree
from tests.sshd import Sshd

# CI judges a change by the same examples each time; a developer's runs look for new ones.
hypothesis.settings.register_profile("same-examples", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("same-examples")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail the run if any test was skipped or expected to fail")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--no-skips") or session.exitstatus != pytest.ExitCode.OK:
        return
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:  # a process of `-n`, whose reports are the main one's to count
        return
    left_out = [report for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])]
    if left_out:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"\n--no-skips: {len(left_out)} test(s) left out; each fails this run", red=True)


_ROOMS = Path(__file__).parent
#: The rooms whose files take longest come first, so that at the end no process is left with a long one.
_FIRST = ("hosts", "engine")


def _room(path: Path) -> str:
    return path.relative_to(_ROOMS).parts[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _FIRST.index(_room(item.path)) if _room(item.path) in _FIRST else len(_FIRST))


class _FilesAndHosts(LoadScopeScheduling):
    """Hands out whole files, and tests/hosts as if it were one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/hosts" if file.startswith("tests/hosts/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return _FilesAndHosts(config, log)


def pytest_xdist_setupnodes() -> None:
    # Once, before several processes do it at the same time.
    snapshot.tree.pristine()


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A running SSH server that ~/.ssh/config knows as `box`; HOME is its user's."""
    with Sshd(tmp_path / "sshd") as server:
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield server
