"""The agent on a host: answers one request after the other over its own two streams, and ends with its controller.

A line is a JSON document. In: `{"verb": ..., "args": {...}}`, with `"bytes": N` if N bytes follow; `{"beat": 1}` while the
controller lives. Out: `{"result": ...}` or `{"error": ..., "code": ..., "kind": ...}`; `{"beat": 1}` while this lives. It holds
the host's lock from `hold` to `release` or to its end. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from deploy import lock, revert, wire
from deploy.facts import Verdict
from deploy.http import NoAnswer
from deploy.machine import Machine, Seat
from tools.errors import UserError

#: Seconds between two beats, and without one until the other side counts as gone.
BEAT, SILENCE = 5.0, 45.0
#: Seconds that an earlier agent of the same rollout gets to end.
TAKE_OVER = 30.0
#: Seconds that somebody else's agent gets.
PATIENCE = 5.0
VERBS = frozenset(
    [
        "about",
        "facts",
        "hold",
        "release",
        "lacks",
        "take",
        "stage",
        "manifest",
        "verify",
        "probes",
        "switch",
        "start",
        "stop",
        "retire",
        "instance",
        "ask",
        "attested",
        "log",
        "judge",
        "prune",
        "audit",
        "arm",
        "confirm",
        "unlock",
    ]
)


class Agent:
    """One controller's agent."""

    def __init__(self) -> None:
        self.input, self.output = sys.stdin.buffer, sys.stdout.buffer
        self.requests: queue.Queue[dict | None] = queue.Queue()
        self.heard = time.monotonic()
        self.taken = threading.Event()
        self.writing = threading.Lock()
        self.held = contextlib.ExitStack()
        self.holds = False
        hello = json.loads(self.input.readline())
        seat = hello["seat"]
        self.host = Machine(wire.load(Seat, seat))
        self.host.by = {**hello["by"], "agent": os.getpid(), "session": hello["session"]}

    def serve(self) -> int:
        """Until the controller is gone."""
        for work in (self._listen, self._beat):
            threading.Thread(target=work, daemon=True).start()
        self._say({"ready": sys.version.split()[0]})
        while True:
            try:
                request = self.requests.get(timeout=BEAT)
            except queue.Empty:
                if time.monotonic() - self.heard > SILENCE:
                    return 1
                continue
            if request is None:
                return 0
            self._say(self._answer(request))

    def _listen(self) -> None:
        for line in self.input:
            self.heard = time.monotonic()
            message = json.loads(line)
            if "beat" in message:
                with contextlib.suppress(OSError):
                    if self.holds:  # another controller that only looks must not speak for the one that is gone
                        revert.beat(self.host.layout.root)
                continue
            self.taken.clear()
            self.requests.put(message)
            if "bytes" in message:
                self.taken.wait()  # what follows is not a line
        self.requests.put(None)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            self._say({"beat": 1})

    def _say(self, message: dict[str, Any]) -> None:
        with self.writing:
            try:
                self.output.write(json.dumps(message).encode() + b"\n")
                self.output.flush()
            except OSError:  # nobody listens: what is being done is finished, then the end of the input ends this
                pass

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            verb = request["verb"]
            if verb not in VERBS:
                raise UserError(f"the agent knows no verb {verb!r}")
            action = getattr(self, f"_{verb}", None) or getattr(self.host, verb)
            return {"result": wire.dump(action(**request["args"]))}
        except NoAnswer as error:
            return {"error": str(error), "kind": "NoAnswer"}
        except (UserError, OSError) as error:
            return self._failure(error)
        except EOFError:
            os._exit(1)

    def _take(self, files: list) -> int:
        try:
            return self.host.store.take(self.input, files)
        except (UserError, OSError) as error:
            # The rest of the bytes can't be told from requests: this connection is of no more use.
            self._say(self._failure(error))
            os._exit(1)
        finally:
            self.taken.set()

    def _failure(self, error: UserError | OSError) -> dict[str, Any]:
        if isinstance(error, UserError):
            return {"error": str(error), "code": error.code}
        where = f": {error.filename or f'under {self.host.layout.root}'}"  # a write tells no name
        return {"error": f"{error.strerror or error}{where}", "code": 1}

    def _hold(self, verb: str) -> None:
        """Take the lock; from an earlier agent of this very rollout, whose connection was lost, by ending it. Another one gets a
        moment: it may be about to notice that its controller is gone."""
        begin = time.monotonic()
        while True:
            try:
                self.held.enter_context(self.host.hold(verb))
                self.holds = True
                return
            except UserError:
                holder = lock.holder(self.host.layout.lock) or {}
                ours = holder.get("session") == self.host.by["session"]
                if time.monotonic() - begin > (TAKE_OVER if ours else PATIENCE):
                    raise
                with contextlib.suppress(ProcessLookupError):
                    if ours:
                        os.kill(int(holder["agent"]), signal.SIGKILL)
                time.sleep(0.2)

    def _release(self) -> None:
        self.holds = False
        self.held.close()

    def _judge(self, verdict: dict) -> None:
        self.host.judge(wire.load(Verdict, verdict))

    def _switch(self, current: str | None, previous: str | None) -> None:
        self.host.switch(current, previous)

    def _ask(self, slot: str, path: str, body: dict | None, timeout: float) -> Any:
        return self.host.ask(slot, path, body, timeout=timeout)


def main(argv: list[str]) -> int:
    """`due PENDING [--at-boot]`: the dead-man's switch looks; nothing: serve a controller."""
    if argv[:1] == ["due"]:
        return revert.due(Path(argv[1]), at_boot="--at-boot" in argv)
    return Agent().serve()
