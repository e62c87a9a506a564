"""Files over HTTP or from a folder, appended to what is already there; an index's addresses are never shown whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import unquote, urlsplit

import requests

from overlay import indexes
from tools.cli import UserError

#: Small enough that a connection which ends early costs little of what had come.
_BLOCK = 1 << 16
#: Seconds to connect, and between two pieces of an answer.
_LIMITS = (15.0, 60.0)
#: Tries in a row that bring nothing; one that brings something starts the count anew.
_TRIES = 5


class Session:
    """Connections to the indexes, shared by threads; requests takes proxies and ~/.netrc from the environment."""

    def __init__(self) -> None:
        found = indexes.of_pip()
        self._http = requests.Session()
        if found.certificates:
            self._http.verify = found.certificates
        self._passwords = found.passwords()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make every running `append` end soon."""
        self._stopped.set()

    def append(self, address: str, file: BinaryIO, *, size: int | None, came: Callable[[int], None], what: str) -> None:
        """Bring `file` (open for appending) to the whole of `address`, from where it ends.

        `came(n)` is told of every n bytes that are there, those from before included. Raises UserError if it can't be had.
        """
        parts = urlsplit(address)
        if parts.scheme in ("", "file"):
            self._copy(Path(unquote(parts.path)), file, came, what)
            return
        told, tries = file.tell(), 0
        came(told)
        while True:
            before, trouble = file.tell(), None
            try:
                if self._get(address, parts.hostname, file, size, came):
                    return
                trouble = "the connection ended early"
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                trouble = type(error).__name__
            except requests.HTTPError as error:
                status, reason = error.response.status_code, error.response.reason
                if status < 500 and status not in (408, 429):
                    raise UserError(f"{parts.hostname} does not give {what}: it answers {status} {reason}") from None
                trouble = f"it answers {status}"
            tries = 0 if file.tell() > before else tries + 1
            if tries >= _TRIES:
                raise UserError(
                    f"{what} can't be downloaded from {parts.hostname} ({trouble}); {file.tell() / 1e6:.1f} MB are kept, and the "
                    "same command goes on from there"
                )
            self._pause(min(2**tries, 15) if tries else 0)

    def _get(self, address: str, host: str | None, file: BinaryIO, size: int | None, came: Callable[[int], None]) -> bool:
        """One request for what is missing; whether the file is whole afterwards, as far as the server says."""
        start = file.tell()
        if size is not None and start == size:
            return True
        # Whole bytes: a packed transfer can't be continued.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
        auth = self._passwords.get(host or "")
        with self._http.get(address, headers=headers, stream=True, timeout=_LIMITS, auth=auth) as answer:
            if answer.status_code == 416 or (start and answer.status_code == 200):
                _empty(file)  # what is there is no beginning of this file, or the server can't continue
                came(-start)
                start = 0
                if answer.status_code == 416:
                    return False
            answer.raise_for_status()
            for block in answer.iter_content(_BLOCK):
                file.write(block)
                came(len(block))
                self._pause(0)
            length = answer.headers.get("Content-Length")
        return file.tell() == (size or start + int(length or -1 - start)) or (size is None and length is None)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds) if seconds else self._stopped.is_set():
            raise UserError("the download was stopped")

    def _copy(self, source: Path, file: BinaryIO, came: Callable[[int], None], what: str) -> None:
        _empty(file)
        try:
            with source.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    file.write(block)
                    came(len(block))
        except OSError as error:
            raise UserError(f"{what} can't be read from its folder ({error.strerror})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()


def _empty(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)
