"""Commands on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from tools.transport.base import Process, Transport


class Local(Transport):
    """This machine."""

    name = "local"

    def start(self, argv: Sequence[str]) -> Process:
        return _LocalProcess(argv)


class _LocalProcess(Process):
    def __init__(self, argv: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        # A session of its own, so that `kill` reaches what the command started.
        self._popen = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        self.stdin, self.stdout, self.stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr

    def wait(self, seconds: float) -> int | None:
        try:
            rc = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return rc if rc >= 0 else 128 - rc

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
