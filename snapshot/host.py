"""A host's installed package, brought here by one tar stream and never taken for the pin without reading every file.

The host's interpreter says where the package lies; nothing of it is imported there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

from snapshot import archive
from snapshot.manifest import PACKAGE
from tools.cli import UserError, err
from tools.paths import CACHE
from tools.transport import Transport

#: Seconds for the interpreter's answer, and for the package (30 MB; a slow link brings 1 MB a second).
LOCATE, PULL = 30.0, 300.0

# Without the working directory: a checkout of the same name in the home directory is not what the service runs.
_LOCATE = """
import importlib.metadata, importlib.util, json, os, sys
sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
spec = importlib.util.find_spec("sglang")
if spec is None or not spec.origin:
    sys.exit("no sglang on the import path of " + sys.executable)
try:
    version = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    version = "without metadata"
print(json.dumps({"site": os.path.dirname(os.path.dirname(os.path.realpath(spec.origin))), "version": version}))
"""


@dataclasses.dataclass(frozen=True)
class Installed:
    """What a host's interpreter has: the import root of the package there, and the version that its metadata names."""

    site: str
    version: str


def locate(host: Transport, python: str) -> Installed:
    """Ask the interpreter `python` on the host for its sglang."""
    done = host.run([python, "-c", _LOCATE], timeout=LOCATE)
    if done.rc:
        reason = (done.stderr.decode(errors="replace").strip() or "it said nothing").splitlines()[-1]
        raise UserError(f"{host.name}: {python} finds no sglang ({reason}); name its interpreter: HOST_PYTHON=/path/bin/python")
    try:
        answer = json.loads(done.stdout)
        return Installed(str(answer["site"]), str(answer["version"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{host.name}: {python} did not say where its sglang is: {done.stdout[:200]!r}") from error


def pull(host: Transport, site: str, destination: Path) -> None:
    """Stream the package below `site` on the host to `destination`, which must not exist. Links come as what they name."""
    bytecode = ["--exclude=__pycache__", "--exclude=*.pyc"]
    argv = ["tar", "--create", "--dereference", "--hard-dereference", *bytecode, "--file=-", f"--directory={site}", PACKAGE]
    with err.status(f"{host.name}: reading {site}/{PACKAGE}"), host.stream(argv, timeout=PULL) as stream:
        archive.unpack_tar(stream, destination)


def home(host: str) -> Path:
    """Where what is known of a host is kept; the host's name is checked, since it becomes a directory's."""
    if not re.fullmatch(r"[A-Za-z0-9_@][A-Za-z0-9_.@:-]*", host):
        raise UserError(f"{host!r} is not a host name", code=2)
    return CACHE / "hosts" / host


def keep(pulled: Path, place: Path) -> None:
    """Move a pulled tree to its place among what is known of the host, instead of an older one."""
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    pulled.rename(place)
