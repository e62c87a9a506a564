"""Questions to a server on this machine, each with one deadline for everything: connect, send, think, receive.

No proxy setting of the environment is honoured: the server is here.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

_BLOCK = 1 << 16


class NoAnswer(Exception):
    """The server did not answer in time, or not with success; the message says how."""


def ask(port: int, path: str, body: dict[str, Any] | None = None, *, timeout: float) -> Any:
    """GET `path`, or POST `body` to it; the JSON document of a 200 answer (None if it is empty)."""
    end = time.monotonic() + timeout
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.connect()
        data = None if body is None else json.dumps(body)
        connection.request("POST" if data else "GET", path, data, {"Content-Type": "application/json", "Connection": "close"})
        socket = connection.sock  # the response takes it over
        socket.settimeout(_left(end))
        response = connection.getresponse()
        received = b""
        while block := response.read1(_BLOCK):
            received += block
            socket.settimeout(_left(end))
    except TimeoutError:
        raise NoAnswer(f"{path}: no answer within {timeout:.0f} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{path}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise NoAnswer(f"{path}: status {response.status}: {received[:300].decode(errors='replace')}")
    try:
        return json.loads(received) if received.strip() else None
    except ValueError:
        raise NoAnswer(f"{path}: the answer is not JSON: {received[:100]!r}") from None


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
