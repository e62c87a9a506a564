"""The command line's manners: an ended reader is no error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.cli import err
from tools.paths import REPO


def test_a_reader_that_has_enough_is_no_error() -> None:
    """`... | head -1` closes the pipe while the command still writes."""
    talk = "from tools.cli import run\ndef main():\n    for _ in range(200000): print('a line')\n    return 0\nrun(main)"
    command = subprocess.Popen([sys.executable, "-c", talk], cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None and command.stderr is not None
    assert command.stdout.readline() == b"a line\n"
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(30) == 0


def test_a_command_whose_reader_is_gone_goes_on_to_its_end(tmp_path: Path) -> None:
    """`make apply 2>&1 | head -1` must not leave a host half way."""
    work = (
        "import pathlib, sys\nfrom tools.cli import err, out, run\n"
        "def main():\n    sys.stdin.read()\n    for _ in range(9): err.print('a step'); out.print('a row')\n"
        "    pathlib.Path(sys.argv[1]).touch()\n    return 3\nrun(main)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = subprocess.Popen([sys.executable, "-c", work, str(tmp_path / "end")], cwd=REPO, **pipes)
    assert command.stdin is not None and command.stdout is not None
    command.stdout.close()
    command.stdin.close()
    assert command.wait(30) == 3 and (tmp_path / "end").exists()


def test_a_line_number_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    err.print("hosts.toml:100: hosts.x", markup=False)
    assert capsys.readouterr().err == "hosts.toml:100: hosts.x\n"
