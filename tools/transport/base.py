"""What every transport does: start a command, feed it, read it, and end it by its deadline."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Self

from tools.cli import UserError

#: Seconds that this side waits longer than the command's own deadline before it gives up on the link.
GRACE = 10.0
#: Bytes handed on at a time.
BLOCK = 1 << 20


class Unreachable(UserError):
    """A host can't be reached, is not the one we know, refuses us, or the connection was lost; the message says which."""


class TimedOut(UserError):
    """A command did not end within its deadline."""


@dataclasses.dataclass(frozen=True)
class Completed:
    """What a command left: its exit status and the bytes of its two outputs."""

    rc: int
    stdout: bytes
    stderr: bytes
    what: str = "command"  # host and command, for messages

    def check(self) -> Completed:
        """Itself, if the command succeeded; else a `UserError` with the end of what it said on stderr."""
        if self.rc == 0:
            return self
        said = self.stderr.decode(errors="replace").strip()[-2000:] or "it said nothing"
        raise UserError(f"{self.what} failed with exit status {self.rc}: {said}")


class Process(ABC):
    """A started command: three binary streams and one end."""

    stdin: BinaryIO
    stdout: BinaryIO
    stderr: BinaryIO

    @abstractmethod
    def wait(self, seconds: float) -> int | None:
        """Its exit status; None if it has not ended after `seconds`; -1 if the status is lost for good."""

    @abstractmethod
    def kill(self) -> None:
        """End the command, or the link to it, at once; blocked reads and writes end with it."""


class Transport(ABC):
    """Runs commands on one machine. Leaving its `with` block gives the connection back."""

    name: str

    @abstractmethod
    def start(self, argv: Sequence[str]) -> Process:
        """Start `argv`; it has no deadline of its own: `run` and `stream` give it one."""

    def close(self) -> None:
        """Give the connection back; a later command opens another."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, argv: Sequence[str], *, input: bytes | BinaryIO | None = None, timeout: float) -> Completed:
        """Run `argv` for at most `timeout` seconds, with `input` on its stdin.

        A non-zero exit status is a result, not an error: see `Completed.check`.
        """
        with _Job(self, argv, timeout) as job:
            feed = _InBackground(_feed, job.process, input)
            stdout = _InBackground(_drain, job.process.stdout)
            outputs = stdout.result(job.seconds_left()), job.stderr.result(job.seconds_left())
            feed.result(job.seconds_left())
            return Completed(job.end(), *outputs, job.what)

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, timeout: float) -> Iterator[BinaryIO]:
        """Run `argv` for at most `timeout` seconds and give its stdout as it comes; what is left unread is discarded.

        A block that fails ends the command: at once here; on a host when it next writes, or at its deadline.
        If the command fails, the block ends with its error, also when the block itself failed meanwhile: the cause at the
        source outranks the symptom here.
        """
        with _Job(self, argv, timeout) as job:
            _feed(job.process, None)
            try:
                yield job.process.stdout
            except Exception as symptom:
                if job.process.wait(1.0) is not None:
                    job.check(symptom)
                raise
            _drain(job.process.stdout)
            job.check()


class _Job:
    """One command with its deadline; it has ended, one way or the other, when the `with` block has."""

    def __init__(self, transport: Transport, argv: Sequence[str], timeout: float) -> None:
        line = shlex.join(argv).replace("\n", " ")
        self.what = f"{transport.name}: `{line if len(line) <= 100 else line[:97] + '...'}`"
        self.timeout = timeout
        self.started = time.monotonic()
        self.expired = threading.Event()
        self.process = transport.start(["timeout", "--kill-after=5", f"{timeout:.3f}", *argv])
        self.stderr = _InBackground(_drain, self.process.stderr)
        self._timer = threading.Timer(timeout + GRACE, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        self.expired.set()
        self.process.kill()

    def seconds_left(self) -> float:
        """Until this side's own deadline has surely passed."""
        return max(0.0, self.started + self.timeout + GRACE + 1 - time.monotonic())

    def end(self) -> int:
        """Wait for the exit status."""
        rc = self.process.wait(self.seconds_left())
        late = time.monotonic() - self.started >= self.timeout
        if self.expired.is_set() or rc is None or (rc in (124, 137) and late):
            raise TimedOut(f"{self.what} did not end within {self.timeout:g} s")
        if rc == -1:
            raise Unreachable(f"{self.what}: the connection was lost; the command may run there until its deadline")
        return rc

    def check(self, symptom: Exception | None = None) -> None:
        """Raise, from `symptom`, if the command failed."""
        try:
            Completed(self.end(), b"", self.stderr.result(self.seconds_left()), self.what).check()
        except UserError as cause:
            raise cause from symptom

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # It knows this job, and this job it: a ring is taken apart in any order, and paramiko's files complain of some.
        del self._timer
        if self.process.wait(0) is None:
            self.process.kill()


class _InBackground:
    """Work that must go on beside other work: a pipe that nobody reads stops the command behind it."""

    def __init__(self, work: Callable[..., bytes], *args: object) -> None:
        self._work, self._args = work, args
        self._result: bytes | BaseException = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work(*self._args)
        except BaseException as error:
            self._result = error

    def result(self, seconds: float) -> bytes:
        """What the work gave; nothing if it has not ended after `seconds`; its error if it failed."""
        self._thread.join(seconds)
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


def _drain(stream: BinaryIO) -> bytes:
    with stream:
        return stream.read()


def _feed(process: Process, source: bytes | BinaryIO | None) -> bytes:
    """Copy `source` to the command's stdin and close it; a command that ends without reading all of it is no error.

    If the source fails, the command is ended: it must not take half of its input for the whole.
    """
    blocks = iter(lambda: source.read(BLOCK), b"") if hasattr(source, "read") else [source or b""]
    try:
        for block in blocks:
            with contextlib.suppress(OSError):
                process.stdin.write(block)
    except BaseException:
        process.kill()
        raise
    with contextlib.suppress(OSError):
        process.stdin.close()
    return b""
