"""Waits for a server, and never for ever: it answers, or it ended, or its time is over; each is said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deploy.http import NoAnswer
from tools.cli import UserError

if TYPE_CHECKING:
    from deploy.host import Host

#: Seconds between two looks, and for one answer.
PAUSE, ONE = 0.5, 30.0


def wait(host: Host, slot: str) -> float:
    """Wait until the slot's server is healthy: it runs, and generated a token for its health endpoint. Returns the seconds.

    A server that ends while it starts is not waited for: it would end again.
    """
    begin = time.monotonic()
    limit = host.entry.limits.start
    last = "it was not asked yet"
    while (passed := time.monotonic() - begin) < limit:
        instance = host.instance(slot)
        if instance.state != "running" or instance.restarts:
            raise UserError(f"the server ended while it started ({instance.exit or instance.state})")
        try:
            host.ask(slot, "/health", timeout=min(ONE, limit - passed))
            return time.monotonic() - begin
        except NoAnswer as error:
            last = str(error)
        time.sleep(PAUSE)
    raise UserError(f"the server was not healthy within {limit:.0f} s (last answer: {last})")
