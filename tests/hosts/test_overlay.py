"""CT129 runs, CT200 does not: the drift is named, the set found, brought as part of a release, and taken back.

Hosts, links, wheelhouse, lock, site, gate, release, unit and proof are real; libraries and engine are stand-ins.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import brought, verbs
from deploy.inputs import Inputs
from deploy.inventory import Entry
from overlay import profiles
from overlay.site import Site
from tests.hosts import world
from tests.hosts.machines import Machine
from tests.overlay import trees
from tests.overlay.wheels import serving
from tools.cli import UserError
from tools.files import sha256
from tools.paths import REPO

PYTHON = "/opt/base/bin/python3"
SITE = "lib/python3.11/site-packages"
CUDART, NCCL = "nvidia/cu13/lib/libcudart.so.13", "nvidia/nccl/lib/libnccl.so.2"
#: What the worker of the stand-in imports from the host's own packages, and maps as torch would.
HOW = {"NEEDS": ("fastapi",), "MAPS": (CUDART, NCCL)}


def base(host: Machine, cuda: int | None) -> Path:
    """Give the host GPUs, and a virtual environment with SGLang's packages for that CUDA, or none. Returns its folder here."""
    (host.root / "etc/gpus.json").write_text('{"dead": {}, "used": {}, "failing": []}')
    (tool := host.root / "usr/local/bin/nvidia-smi").write_text(Path(__file__).with_name("nvidia_smi.py").read_text())
    tool.chmod(0o755)
    folder = host.root / "opt/base"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to("/usr/bin/python3")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (folder / SITE).mkdir(parents=True)
    if cuda:
        trees.tree(folder / SITE, cuda)
    return folder


@pytest.fixture
def profile(fresh: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A profile `cu130` whose wheels are fake libraries, locked by hash, on an index; with a cache of its own."""
    folder = trees.wheels(tmp_path / "index", 13)
    made = tmp_path / "profiles"
    made.mkdir()
    text = (profiles.PROFILES / "cu130.toml").read_text()
    (made / "cu130.toml").write_text(text)
    pins = [f"{file.name.split('-')[0].replace('_', '-')}=={file.name.split('-')[1]} --hash=sha256:{sha256(file)}\n"
            for file in sorted(folder.glob("*.whl"))]  # fmt: skip
    for python in ("3.10", "3.11", "3.12"):
        (made / f"cu130-{python}.lock").write_text("".join(pins))
    monkeypatch.setattr(profiles, "PROFILES", made)
    monkeypatch.setattr(brought, "STORE", tmp_path / "store")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with serving(folder) as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/simple")
        yield


def inputs(folder: Path, entry: Entry, **how: object) -> Inputs:
    """A release of the stand-in engine that brings what the entry's profile and scope say."""
    made, site = world.make_inputs(folder, entry, **how), brought.site(entry)
    return dataclasses.replace(made, site=site.root, digests={**made.digests, "overlay": site.digest})


def overlay(*arguments: str) -> tuple[int, dict]:
    command = [sys.executable, "-m", "overlay", *arguments, "--json"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def doctor(host: str, *path: str) -> tuple[int, set[str]]:
    """The doctor's exit code, and the rules of its errors."""
    code, found = overlay("doctor", *path, "--host", host, "--python", PYTHON)
    return code, {one["rule"] for one in found["findings"] if one["severity"] == "error"}


def test_a_host_of_cuda_12_gets_what_a_host_of_cuda_13_has_and_keeps_its_own(
    fresh: Callable[..., Machine], profile: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ct129, ct200 = fresh("ct129"), fresh("ct200")
    base(ct129, 13)
    own = base(ct200, 12)
    before = trees.digest(own)

    assert doctor("ct129") == (0, set())
    code, rules = doctor("ct200")
    assert code == 1 and "R2" in rules
    code, found = overlay("diff", "--a", "ct129", "--b", "ct200", "--python", PYTHON)
    assert code == 0 and found["scope"] == "abi"
    bring = dict(found["bring"])
    assert bring["torch"] == "2.11.0+cu130" and bring["nvidia-nccl-cu13"] == "2.28.9" and "fastapi" not in bring

    entry = world.make_entry(ct200, profile="cu130", scope="code", python=PYTHON)
    with pytest.raises(UserError, match=r'ct200: .* has no .*nvidia-nccl-cu13.* set scope = "full" for ct200'):
        brought.site(entry)
    assert ct200.sh("ls /opt") == "base", "nothing was written"

    entry = dataclasses.replace(entry, scope="abi")
    host = verbs.connect(entry)

    def said() -> dict:
        return json.loads(capsys.readouterr().out)

    gone = dataclasses.replace(entry, name="gone", address="10.77.0.251")
    both = brought.sites([gone, entry])
    assert str(both["gone"]) == "10.77.0.251: cannot connect: Unable to connect to port 22 on 10.77.0.251"
    assert isinstance(both["ct200"], Site), "a host that is away keeps nobody back"
    good = inputs(tmp_path, entry, **HOW)
    assert {path.name for path in good.site.glob("*.dist-info")} == {
        f"{name.replace('-', '_')}-{version.split('+')[0]}.dist-info" for name, version in bring.items()
    }, "what overlay-diff says is what is brought"
    assert verbs.apply(host, good, json=True) == 0, capsys.readouterr()
    prove = next(step for step in said()["steps"] if step["step"] == "prove")
    assert prove["detail"].endswith("2 of CUDA's libraries once each")
    assert world.served(ct200) == good.release
    assert doctor("ct200", "/opt/sglang/current/site") == (0, set())
    assert doctor("ct200")[0] == 1, "its own packages are as they were"
    env = ct200.sh("cat /opt/sglang/current/env/engine.env")
    assert "CPU_ENGINE" not in env and "TRITON_INTERPRET" not in env, "a host with GPUs computes on them"

    for wrong, why in (
        ({"MAPS": (CUDART, NCCL, "nvidia/cuda_runtime/lib/libcudart.so.12")}, "2 copies of libcudart loaded"),
        ({"MAPS": (CUDART, "/usr/lib/libnccl.so.2")}, "loaded /usr/lib/libnccl.so.2 outside the release"),
    ):
        (ct200.root / "usr/lib/libnccl.so.2").write_bytes(b"another NCCL")
        assert verbs.apply(host, inputs(tmp_path, entry, **{**HOW, **wrong}), json=True) == 3
        report = said()
        assert report["failure"].startswith("prove: ") and why in report["failure"], report["failure"]
        assert world.served(ct200) == good.release

    second = inputs(tmp_path, entry, **HOW, ACCEPT=2)
    assert verbs.apply(host, second, json=True) == 0, capsys.readouterr()
    state = ct200.sh("cd /opt/sglang/releases && find . -type f -exec sha256sum {} + | sort | sha256sum")
    assert verbs.rollback(host, None, json=True) == 0
    assert world.current(ct200) == good.release == world.served(ct200)
    assert ct200.sh("cd /opt/sglang/releases && find . -type f -exec sha256sum {} + | sort | sha256sum") == state
    assert doctor("ct200", "/opt/sglang/current/site") == (0, set())
    assert trees.digest(own) == before, "the host's own packages were never written to"
    host.close()


def test_a_host_with_only_python_gets_the_whole_environment(
    fresh: Callable[..., Machine], profile: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = fresh("bare")
    base(machine, None)
    entry = world.make_entry(machine, profile="cu130", scope="abi", python=PYTHON)
    with pytest.raises(UserError, match=r'bare: /opt/base/bin/python3 has no fastapi, .* set scope = "full" for bare'):
        brought.site(entry)
    entry = dataclasses.replace(entry, scope="full")
    host = verbs.connect(entry)
    assert verbs.apply(host, inputs(tmp_path, entry, **HOW), json=True) == 0, capsys.readouterr()
    assert doctor("bare", "/opt/sglang/current/site") == (0, set())
    host.close()
