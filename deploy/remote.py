"""A real host, over SSH: each verb of `deploy.host.Host` is a request to the agent, which is this project's own code, streamed
there when the first one is made. Nothing needs to be installed on the host but Python 3.11 and systemd.

A connection that is lost is made anew once, for what a failed rollout takes back; after that the host counts as gone, and what
it does is its dead-man's switch's.
"""

from __future__ import annotations

import contextlib
import io
import json
import queue
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from deploy import lock, parcel, wire
from deploy.agent import BEAT, SILENCE
from deploy.facts import Facts, Instance, Verdict
from deploy.http import NoAnswer
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.layout import Layout
from deploy.manifest import Manifest
from deploy.pairs import Probes
from deploy.proof import Attested
from tools.errors import UserError
from tools.paths import REPO
from tools.transport import Ssh, Unreachable

#: Seconds that a verb may take on the host, beside those that depend on the entry.
LONG = {
    "lacks": 900.0,
    "take": 900.0,
    "stage": 900.0,
    "verify": 300.0,
    "prune": 300.0,
    "switch": 300.0,
    "hold": 60.0,
    "arm": 90.0,
    "start": 150.0,
}
QUICK = 60.0
#: Seconds for the agent's first word.
HELLO = 30.0
#: What reads and writes raise where a link ended: paramiko says EOFError in the middle of a write.
BROKEN = (OSError, EOFError)
#: Bytes of files asked to be taken at a time.
BATCH = 64 << 20

_TRAVELS = (
    "tools/__init__.py",
    "tools/errors.py",
    "deploy/__init__.py",
    *[
        f"deploy/{name}.py"
        for name in ("agent", "audit", "digest", "facts", "gpus", "http", "layout", "local", "lock", "machine")
    ],
    "deploy/mapped.py",
    *[f"deploy/{name}.py" for name in ("manifest", "pairs", "ports", "proof", "revert", "slot", "store", "switch", "systemd")],
    *[f"deploy/{name}.py" for name in ("vram", "wire")],
)
_MAIN = "import sys\nfrom deploy.agent import main\nsys.exit(main(sys.argv[1:]))\n"
# The program lies in memory only: a file descriptor is its name.
_BOOT = (
    "import os,runpy,sys\n"
    "if sys.version_info<(3,11): sys.exit('the agent needs Python 3.11, this is '+sys.version.split()[0])\n"
    "b=sys.stdin.buffer; z=b.read(int(b.read(10)))\n"
    "f=os.memfd_create('agent'); os.write(f,z); p='/proc/self/fd/%d'%f\n"
    "sys.argv=[p]; runpy.run_path(p, run_name='__main__')"
)


def program() -> bytes:
    """The agent as a zip application; equal sources give equal bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (*_TRAVELS, "__main__.py"):
            data = _MAIN.encode() if name == "__main__.py" else (REPO / name).read_bytes()
            archive.writestr(zipfile.ZipInfo(name), data)
    return made.getvalue()


class Link:
    """One connection with one agent."""

    def __init__(self, entry: Entry, session: str, poll: Callable[[], None]) -> None:
        self.name, self._poll = entry.name, poll
        self.ssh = Ssh(
            entry.address or entry.name, user=entry.user, port=entry.ssh_port, jump=entry.jump, identity=entry.identity
        )
        sudo = ["sudo", "-n", "--"] if entry.sudo else []
        self.process = self.ssh.start([*sudo, entry.python, "-I", "-c", _BOOT])
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.heard = time.monotonic()
        self.lost = False
        self._writing = threading.Lock()
        code = program()
        seat = {
            "root": str(entry.root), "service": entry.service, "drain": entry.limits.drain, "slots": wire.dump(entry.slots),
            "gpus": entry.gpus,
        }  # fmt: skip
        hello = json.dumps({"seat": seat, "by": lock.who(), "session": session})
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            with contextlib.suppress(*BROKEN):  # then it says why, and ends
                self.process.stdin.write(b"%-10d" % len(code) + code + hello.encode() + b"\n")
            if "ready" not in (self._next(HELLO) or {}):
                raise self._refused(entry)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._beat, daemon=True).start()

    def call(self, verb: str, args: dict[str, Any], seconds: float, size: int = 0, blocks: Iterable[bytes] = ()) -> Any:
        """One request; its result, or its error as it was raised there. An interrupted one ends the connection: its answer
        must not be taken for the next one's."""
        try:
            return self._call(verb, args, seconds, size, blocks)
        except KeyboardInterrupt:
            self.close()
            raise

    def _call(self, verb: str, args: dict[str, Any], seconds: float, size: int, blocks: Iterable[bytes]) -> Any:
        try:
            with self._writing:
                more = {"bytes": size} if size else {}
                self.process.stdin.write(json.dumps({"verb": verb, "args": args, **more}).encode() + b"\n")
                for block in blocks:
                    self.process.stdin.write(block)
        except BROKEN:
            pass  # what it said before it ended is the better answer
        answer = self._next(seconds)
        if answer is None:
            self.close()
            raise Unreachable(f"{self.name}: the connection was lost during `{verb}`")
        if answer.get("kind") == "NoAnswer":
            raise NoAnswer(answer["error"])
        if "error" in answer:
            raise UserError(f"{self.name}: {answer['error']}", answer["code"])
        return answer["result"]

    def close(self) -> None:
        self.lost = True
        self.ssh.close()

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None if there is none in time, or the host went silent."""
        end = time.monotonic() + seconds
        while (left := min(end, self.heard + SILENCE) - time.monotonic()) > 0:
            self._poll()
            with contextlib.suppress(queue.Empty):
                return self.answers.get(timeout=min(left, 1.0))
        return None

    def _listen(self) -> None:
        try:
            for line in self.process.stdout:
                self.heard = time.monotonic()
                message = json.loads(line)
                if "beat" not in message:
                    self.answers.put(message)
        except (*BROKEN, ValueError):
            pass
        self.answers.put(None)

    def _beat(self) -> None:
        while not self.lost:
            time.sleep(BEAT)
            with contextlib.suppress(*BROKEN), self._writing:
                if not self.lost:
                    self.process.stdin.write(b'{"beat": 1}\n')

    def _refused(self, entry: Entry) -> UserError:
        ended = self.process.wait(5.0)
        said = self.process.stderr.read().decode(errors="replace").strip() if ended not in (None, -1) else ""
        if ended == -1 and not said:  # what SSH says of a link that ended before the command did
            return Unreachable(f"{self.name}: the connection was lost during the agent's start")
        last = said.splitlines()[-1] if said else "it said nothing"
        if "sudo" in said:
            return UserError(
                f"{self.name}: sudo without a password is refused ({last}): let the user run {entry.python} with NOPASSWD in "
                "/etc/sudoers.d, or set sudo = false and a root that the user may write"
            )
        if ended == 127:
            return UserError(f"{self.name}: there is no {entry.python} ({last}): name the host's interpreter with `python`")
        return UserError(f"{self.name}: the agent does not start there under {entry.python} (exit status {ended}): {last}")


class Remote:
    """Implements `deploy.host.Host`."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.layout = Layout(entry.root)
        self.progress: Callable[[int, int], None] | None = None
        self.poll: Callable[[], None] = lambda: None
        self.session = uuid.uuid4().hex
        self._link: Link | None = None
        self._held: str | None = None
        self._gone: UserError | None = None
        self._before = False  # whether there ever was a connection

    def endpoint(self, slot: str) -> str:
        port = next((one.port for one in self.entry.slots if one.name == slot), "?")
        return f"http://{self.entry.address or self.entry.name}:{port}"

    def root(self) -> Path:
        return self.layout.root

    def facts(self) -> Facts:
        return wire.load(Facts, self._call("facts"))

    def about(self) -> dict[str, Any]:
        """The machine itself."""
        return self._call("about")

    @contextlib.contextmanager
    def hold(self, verb: str) -> Iterator[None]:
        self._call("hold", verb=verb)
        self._held = verb
        try:
            yield
        finally:
            self._held = None
            with contextlib.suppress(UserError):
                if self._link and not self._link.lost:
                    self._call("release")

    def stage(self, inputs: Inputs) -> Manifest:
        made = parcel.pack(inputs, self.layout)
        self._push(made)
        files = [(name, item.sha, item.executable) for name, item in made.items.items()]
        return wire.load(Manifest, self._call("stage", release=made.release, files=files))

    def manifest(self, release: str) -> Manifest:
        return wire.load(Manifest, self._call("manifest", release=release))

    def verify(self, release: str) -> None:
        self._call("verify", release=release)

    def probes(self, release: str) -> Probes:
        return wire.load(Probes, self._call("probes", release=release))

    def switch(self, current: str | None, previous: str | None) -> None:
        self._call("switch", current=current, previous=previous)

    def start(self, slot: str, release: str) -> Instance:
        return wire.load(Instance, self._call("start", slot=slot, release=release))

    def stop(self, slot: str) -> bool:
        return self._call("stop", slot=slot, seconds=self.entry.limits.drain + 90)

    def retire(self, slot: str) -> bool:
        return self._call("retire", slot=slot, seconds=self.entry.limits.drain + 90)

    def instance(self, slot: str) -> Instance:
        return wire.load(Instance, self._call("instance", slot=slot))

    def ask(self, slot: str, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any:
        return self._call("ask", slot=slot, path=path, body=body, timeout=timeout, seconds=timeout + 15)

    def attested(self, slot: str) -> tuple[Attested, ...]:
        return wire.load(tuple[Attested, ...], self._call("attested", slot=slot))

    def log(self, slot: str, lines: int) -> list[str]:
        return self._call("log", slot=slot, lines=lines)

    def judge(self, verdict: Verdict) -> None:
        self._call("judge", verdict=wire.dump(verdict))

    def prune(self, keep: int, spare: frozenset[str]) -> tuple[str, ...]:
        return tuple(self._call("prune", keep=keep, spare=sorted(spare)))

    def audit(self, event: dict[str, Any]) -> None:
        self._call("audit", event=event)

    def arm(self, silence: float) -> None:
        self._call("arm", silence=silence)

    def confirm(self) -> None:
        """By a connection of its own: the one that is there proves nothing about the next one."""
        link = Link(self.entry, self.session, lambda: self.poll())
        try:
            link.call("confirm", {}, QUICK)
        finally:
            link.close()

    def unlock(self) -> str | None:
        """End the command that holds the host's lock; who it was, None if nobody."""
        return self._call("unlock")

    def close(self) -> None:
        """Give the connection back."""
        if self._link:
            self._link.close()

    def _push(self, made: parcel.Parcel) -> None:
        by_key = {(item.sha, item.executable): item for item in made.items.values()}
        wanted = [(sha, item.size, executable) for (sha, executable), item in by_key.items()]
        missing = self._call("lacks", wanted=wanted, links=len(made.items))
        total, sent = sum(size - have for _, size, _, have in missing), 0
        batch: list[tuple] = []
        for number, one in enumerate(missing):
            batch.append(one)
            size = sum(size - have for _, size, _, have in batch)
            if size >= BATCH or number == len(missing) - 1:
                blocks = (block for sha, _, executable, have in batch for block in by_key[sha, executable].blocks(have))
                self._call("take", files=batch, size=size, blocks=self._counted(blocks, sent, total))
                batch, sent = [], sent + size

    def _counted(self, blocks: Iterator[bytes], sent: int, total: int) -> Iterator[bytes]:
        for block in blocks:
            yield block
            sent += len(block)
            self.poll()
            if self.progress:
                self.progress(sent, total)

    def _call(
        self, verb: str, /, *, seconds: float | None = None, size: int = 0, blocks: Iterable[bytes] = (), **args: Any
    ) -> Any:
        seconds = seconds or LONG.get(verb, QUICK)
        return self._connected().call(verb, args, seconds, size, blocks)

    def _connected(self) -> Link:
        if self._link and not self._link.lost:
            return self._link
        if self._gone:
            raise self._gone
        try:
            link = Link(self.entry, self.session, lambda: self.poll())
            if self._held:
                link.call("hold", {"verb": self._held}, LONG["hold"])
        except UserError as error:
            if self._before:
                self._gone = error
            raise
        self._link, self._before = link, True
        return link
