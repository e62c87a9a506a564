"""A host's package comes here over a slow link: whole, as the host itself hashed it, and far faster than file by file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot import tree
from tests.hosts.linkproxy import LinkProxy
from tests.hosts.machines import Machine
from tools.paths import REPO

Fresh = Callable[..., Machine]

#: Seconds one way, and bytes a second: a round trip of 20 ms, 100 Mbit/s.
DELAY, RATE = 0.010, 100e6 / 8
#: Where Debian's own interpreter looks.
SITE = "/usr/local/lib/python3.11/dist-packages"

FETCH = """
import sys
from pathlib import Path
from snapshot import __main__ as command, host
command.CACHE = host.CACHE = Path({cache!r})
sys.exit(command.main(["fetch", "--host", "ct129", "--json"]))
"""


@pytest.fixture
def pristine() -> Path:
    """The pinned tree; fetched, if it must be, before the test is in the hosts' network, which has no way out."""
    return tree.pristine()


def install(machine: Machine, root: Path) -> None:
    """The pinned package, with metadata, for the host's own interpreter."""
    read, write = os.pipe()
    with subprocess.Popen(
        ["tar", "--create", "--exclude=__pycache__", "--file=-", f"--directory={root}", "sglang"], stdout=write
    ):
        os.close(write)
        subprocess.run(["tar", "--extract", "--file=-", f"--directory={machine.root}{SITE}"], stdin=read, check=True)
        os.close(read)
    (machine.root / SITE[1:] / "sglang-0.5.11.dist-info").mkdir()
    (machine.root / SITE[1:] / "sglang-0.5.11.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.11\n"
    )


def measure(folder: Path) -> tuple[int, int]:
    """Files under the folder, and their bytes; byte code, which those who import from it leave there, is not the package's."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return len(sizes), sum(sizes)


def slow(machine: Machine, link: LinkProxy) -> None:
    """The way to the host leads through the link."""
    ssh = Path(os.environ["HOME"], ".ssh")
    name, port = link.address
    (ssh / "config").write_text(
        f"Host ct129\n  HostName {name}\n  Port {port}\n  User root\n  IdentityFile {machine.site.key}\n"
        f"  UserKnownHostsFile {ssh}/known_hosts\n"
    )
    (ssh / "known_hosts").write_text(f"[{name}]:{port} {machine.known_hosts.split(' ', 1)[1]}")


def test_a_package_comes_five_times_faster_than_by_scp(pristine: Path, fresh: Fresh, tmp_path: Path) -> None:
    """Nobody waits for the end of scp, which takes minutes and goes file by file: in the snapshot's own time it brings less than
    a fifth, of the files and of the bytes."""
    machine = fresh("ct129")
    install(machine, pristine)
    with LinkProxy((machine.address, 22), delay=DELAY, rate=RATE) as link:
        slow(machine, link)
        begin = time.monotonic()
        code = FETCH.format(cache=str(tmp_path / "cache"))
        done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, timeout=120, check=False)
        seconds = time.monotonic() - begin
        assert done.returncode == 0, done.stdout + done.stderr
        said = json.loads(done.stdout)
        assert (said["same"], said["changed"], said["installed"]["site"]) == (2529, [], SITE)
        packed = link.passed["down"]

        argv = ["scp", "-r", "-q", "-F", os.environ["HOME"] + "/.ssh/config", f"ct129:{SITE}/sglang", str(tmp_path / "scp")]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as scp:
            try:
                scp.wait(seconds)
            except subprocess.TimeoutExpired:
                scp.kill()
    whole, came = measure(pristine / "sglang"), measure(tmp_path / "scp")
    print(f"snapshot: {seconds:.1f} s, {packed} bytes over the link; scp -r in the same time: {came} of {whole} (files, bytes)")
    assert came[0] > 10, "scp works over this link"
    assert 5 * came[0] < whole[0] == 2529 and 5 * came[1] < whole[1]

    # The kept tree against hashes that the host takes now, by a tool of its own.
    kept = tmp_path / "cache/hosts/ct129/snapshot"
    sums = machine.sh(f"cd {SITE} && find sglang -type f ! -path '*/__pycache__/*' -exec sha256sum {{}} +")
    assert len(sums.splitlines()) == 2529
    check = subprocess.run(["sha256sum", "--check", "--quiet"], cwd=kept, input=sums + "\n", text=True, check=False)
    assert check.returncode == 0
