"""What every test run shares: an option that makes a skipped test a failure, and a real SSH server.

CI passes `--no-skips`: a run that left something out must not look like a run that proved it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

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
    left_out = [report for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])]
    if left_out:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"\n--no-skips: {len(left_out)} test(s) left out; each fails this run", red=True)


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A running SSH server that ~/.ssh/config knows as `box`; HOME is its user's."""
    with Sshd(tmp_path / "sshd") as server:
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield server
