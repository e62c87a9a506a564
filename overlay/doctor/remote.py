"""The facts of a host: the reader goes there as a zip through standard input, into memory, and leaves nothing behind."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path

from overlay.doctor import wire
from overlay.doctor.facts import Facts
from tools import transport
from tools.cli import UserError

#: What travels: the reader and what it imports.
_MODULES = ("__init__", "cuda", "dist", "elf", "facts", "fatbin", "host", "layers", "reader", "symbols", "tree", "wire")
#: A file in memory is one for zipimport; the interpreter writes no bytecode (-B) and takes no settings of the user's (-I).
_START = """
import sys
sent = sys.stdin.buffer.read()
if sys.version_info < (3, 10):
    sys.exit('the interpreter there is Python %d.%d; the doctor needs 3.10 or newer' % sys.version_info[:2])
import os, runpy
fd = os.memfd_create('doctor')
with os.fdopen(os.dup(fd), 'wb') as file: file.write(sent)
sys.path.insert(0, '/proc/self/fd/%d' % fd)
runpy.run_module('overlay.doctor.reader', run_name='__main__')
"""
#: Without the interpreter, what was sent is read all the same: a link with nobody at its end is another error.
_FIND = 'command -v "$0" >/dev/null || { cat >/dev/null; exit 127; }; exec "$0" "$@"'


def read(
    name: str,
    site: str | None = None,
    python: str = "python3",
    *,
    hashes: bool = False,
    timeout: float = 120,
    over: transport.Transport | None = None,
) -> Facts:
    """The facts of a site root on a host, or of the one that `python` there has. `over`: another way to it than its name.

    A release's site is read with the packages of `python` behind it, as its server sees them.

    Raises UserError if the host can't be reached, has no such interpreter, or there is no such root.
    """
    argv = ["sh", "-c", _FIND, python, "-I", "-B", "-c", _START, *([site] if site else []), *(["--hashes"] if hashes else [])]
    with over or transport.to(name) as host:
        done = host.run(argv, input=archive(), timeout=timeout)
    if done.rc in (126, 127):
        raise UserError(f"{name}: there is no {python} that can be run; name one with HOST_PYTHON=/path/to/python")
    if done.rc != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"the reader ended with exit status {done.rc}"]
        raise UserError(f"{name}: {said[-1]}")
    try:
        return wire.decode(json.loads(zlib.decompress(done.stdout)))
    except (ValueError, zlib.error) as error:
        why = f"the reader's answer is not whole ({error}); does the login shell there print anything?"
        raise UserError(f"{name}: {why}") from error


def archive() -> bytes:
    """The reader as a zip that Python can import from."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("overlay/__init__.py", "")
        for name in _MODULES:
            file.write(Path(__file__).with_name(f"{name}.py"), f"overlay/doctor/{name}.py")
    return packed.getvalue()
