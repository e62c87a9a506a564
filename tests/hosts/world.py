"""Inventory entries and releases for test hosts; the stand-in engine is that of `tests.deploy.world`."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

from deploy import remote
from deploy.inputs import Inputs
from deploy.inventory import Entry, Limits
from tests.deploy import world
from tests.hosts.machines import Machine

ROOT, PORT = Path("/opt/sglang"), 30000
#: Seconds without its controller until a host goes back.
SILENCE = 12.0


def make_entry(host: Machine, **more: object) -> Entry:
    """An entry with short limits for a host that ~/.ssh/config knows."""
    limits = Limits(start=60, drain=2, answer=5, accept_min=1.0, accept_max=8.0, speed_floor=1e-6, silence=SILENCE)
    return Entry(
        name=host.name,
        transport="ssh",
        root=ROOT,
        **{"profile": "cpu", "pair": "pair", "slots": world.slots(port=PORT), "limits": limits, **more},
    )


def make_inputs(folder: Path, entry: Entry, **how: object) -> Inputs:
    """A release whose server behaves as `how` says."""
    return world.make_inputs(folder, entry, **how)


def current(host: Machine) -> str | None:
    """What `current` points to on the host, seen by the test's own eyes; it must be whole."""
    name = host.sh(f"cd {ROOT} 2>/dev/null && readlink current || true").split("/")[-1]
    if name:
        host.sh(f'cd {ROOT}/current/ && grep -q \'"release": "{name}"\' manifest.json && test -s site/sglang/launch_server.py')
    return name or None


def served(host: Machine, port: int = PORT) -> str:
    """The release that the host's server on that port says it is."""
    code = f"import json,urllib.request as u; print(json.load(u.urlopen('http://127.0.0.1:{port}/model_info'))['weight_version'])"
    return host.sh(f'python3 -c "{code}"')


def answers() -> str:
    """A command that says whether a server answers there."""
    return f"python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health')\""


def see_whole(host: Machine) -> None:
    """Every file of every release that has its name is as its manifest says, seen by the test's own eyes."""
    code = (
        "import hashlib, json, pathlib\n"
        f"for made in pathlib.Path('{ROOT}/releases').glob('[!.]*'):\n"
        " for name, sha in json.loads((made / 'manifest.json').read_text())['files'].items():\n"
        "  assert hashlib.sha256((made / 'site' / name).read_bytes()).hexdigest() == sha, made / name\n"
        " assert all(path.stat().st_size for path in made.rglob('*') if path.is_file() and path.name != '__init__.py'), made\n"
    )
    host.sh("python3 -", input=code.encode())


def impatient(shorter: dict[str, tuple[str, str]]) -> Callable[[], bytes]:
    """Instead of `deploy.remote.program`: the agent with shorter deadlines, by file what stands there and what instead."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(remote.program())) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            text, (before, after) = old.read(name).decode(), shorter.get(name, ("", ""))
            assert before in text
            new.writestr(name, text.replace(before, after) if before else text)
    return made.getvalue
