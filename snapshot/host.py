"""A host's installed package, brought here by one packed tar stream; what arrived is compared with the host's own hashes.

The host's interpreter says where the package lies and hashes its files; nothing of it is imported there.
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
LOCATE, PULL = 60.0, 300.0

#: Text packs to a quarter, at more than 100 MB/s where it is read and unpacked: less time even on a fast network.
_PACK = "--use-compress-program=gzip -1"

# Without the working directory: a checkout of the same name in the home directory is not what the service runs.
_LOCATE = """
import hashlib, importlib.metadata, importlib.util, json, os, sys
sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
spec = importlib.util.find_spec("sglang")
if spec is None or not spec.origin:
    sys.exit("no sglang on the import path of " + sys.executable)
try:
    version = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    version = "without metadata"
package = os.path.dirname(os.path.realpath(spec.origin))
site = os.path.dirname(package)
files = {}
for folder, folders, names in os.walk(package, followlinks=True):
    folders[:] = [name for name in folders if name != "__pycache__"]
    for name in names:
        path = os.path.join(folder, name)
        if not name.endswith(".pyc"):
            try:
                with open(path, "rb") as data:
                    files[os.path.relpath(path, site)] = hashlib.sha256(data.read()).hexdigest()
            except OSError:
                files[os.path.relpath(path, site)] = None
print(json.dumps({"site": site, "version": version, "files": files}))
"""


@dataclasses.dataclass(frozen=True)
class Installed:
    """What a host's interpreter has: the import root of the package there, the version that its metadata names, and the hash
    that the host itself took of each file below the root, bytecode left out; None: it could not be read."""

    site: str
    version: str
    files: dict[str, str | None] = dataclasses.field(repr=False)

    @property
    def named(self) -> dict[str, str]:
        """Without the files."""
        return {"site": self.site, "version": self.version}


def locate(host: Transport, python: str) -> Installed:
    """Ask the interpreter `python` on the host for its sglang."""
    done = host.run([python, "-c", _LOCATE], timeout=LOCATE)
    if done.rc:
        reason = (done.stderr.decode(errors="replace").strip() or "it said nothing").splitlines()[-1]
        raise UserError(f"{host.name}: {python} finds no sglang ({reason}); name its interpreter: HOST_PYTHON=/path/bin/python")
    try:
        answer = json.loads(done.stdout)
        return Installed(str(answer["site"]), str(answer["version"]), dict(answer["files"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{host.name}: {python} did not say where its sglang is: {done.stdout[:200]!r}") from error


def pull(host: Transport, installed: Installed, destination: Path) -> None:
    """Stream the package on the host to `destination`, which must not exist. Links come as what they name.

    Raises:
        UserError: the stream is refused, or a file that arrived is not what the host hashed; `destination` is then not there.
    """
    bytecode = ["--exclude=__pycache__", "--exclude=*.pyc"]
    argv = ["tar", "--create", _PACK, "--dereference", "--hard-dereference", *bytecode, "--file=-"]
    argv += [f"--directory={installed.site}", PACKAGE]
    what = f"{host.name}: reading {installed.site}/{PACKAGE}"
    with err.status(what), host.stream(argv, timeout=PULL) as stream:
        arrived = archive.unpack_tar(stream, destination)
    odd = sorted(name for name in arrived.keys() | installed.files.keys() if arrived.get(name) != installed.files.get(name))
    if odd:
        shutil.rmtree(destination)
        some = ", ".join(map(repr, odd[:3])) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        raise UserError(
            f"{host.name}: what arrived is not what the host hashed just before, in {some}: somebody changes "
            f"{installed.site}/{PACKAGE} there; nothing was taken, run it again"
        )


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
