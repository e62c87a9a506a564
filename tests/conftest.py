"""What every test run shares: an option that makes a skipped test a failure.

CI passes `--no-skips`: a run that left something out must not look like a run that proved it.
"""

from __future__ import annotations

import pytest


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
