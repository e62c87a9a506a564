"""The command line's manners: an ended reader is no error."""

from __future__ import annotations

import subprocess
import sys

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
