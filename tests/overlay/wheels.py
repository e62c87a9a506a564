"""Wheels for tests, and an index that serves them: real HTTP with ranges, and faults where a test asks for them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def wheel(folder: Path, name: str, files: Mapping[str, bytes], version: str = "1.0", requires: tuple[str, ...] = ()) -> Path:
    """Write one whose RECORD is right; `files` are paths in it and their bytes. Returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = "".join(f"{path},sha256={record_hash(data)},{len(data)}\n" for path, data in members.items())
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in {**members, f"{info}/RECORD": f"{rows}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(zipfile.ZipInfo(path), data)
    return place


def record_hash(data: bytes) -> str:
    """A sha256 as RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


class Index:
    """A package index in a folder of wheels, with what was asked of it and what goes wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self.ranges: list[str | None] = []  # the Range header of each request for a file, None where it has none
        self.cut: int | None = None  # bytes of a file after which the connection ends
        self.cuts = 0  # how many answers are cut
        self.refuse_ranges = False

    def page(self, name: str) -> bytes:
        """The index's page of one package."""
        files = [
            {
                "filename": file.name,
                "url": f"{self.address}/files/{file.name}",
                "hashes": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
                "size": file.stat().st_size,
            }
            for file in sorted(self.folder.glob("*.whl"))
            if re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower() == name
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()


@contextmanager
def serving(folder: Path) -> Iterator[Index]:
    """The index of a folder, reachable at its `address`/simple."""
    index = Index(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "simple":
                self._answer(200, index.page(name), {"Content-Type": "application/vnd.pypi.simple.v1+json"})
                return
            file = index.folder / name
            if not file.is_file():
                self._answer(404, b"", {})
                return
            data = file.read_bytes()
            asked = self.headers.get("Range")
            from_start = re.fullmatch(r"bytes=(\d+)-", asked or "")
            if "uv" not in self.headers.get("User-Agent", ""):
                index.ranges.append(asked)
            if asked and not index.refuse_ranges:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                if first == "":
                    first, last = str(len(data) - int(last)), ""
                end = int(last) + 1 if last else len(data)
                if int(first) >= len(data):
                    self._answer(416, b"", {})
                    return
                rest = data[int(first) : end]
                headers = {"Content-Range": f"bytes {first}-{int(first) + len(rest) - 1}/{len(data)}"}
                self._answer(206, rest, headers, cut=bool(from_start))
            else:
                self._answer(200, data, {"Accept-Ranges": "bytes"}, cut="uv" not in self.headers.get("User-Agent", ""))

        do_HEAD = do_GET

        def _answer(self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if cut and index.cut is not None and index.cuts > 0:
                index.cuts -= 1
                self.wfile.write(body[: index.cut])
                self.close_connection = True
                return
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        index.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
