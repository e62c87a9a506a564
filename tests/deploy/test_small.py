"""The lock between processes, who holds a port, HTTP deadlines, arguments, and the command line's manners."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deploy import fleet, http, lock, ports, unit, verbs
from deploy.inventory import NONE
from deploy.layout import Layout
from deploy.pairs import Pair
from deploy.slot import Slot
from tests.deploy import world
from tools.cli import UserError

REPO = Path(__file__).parents[2]


def test_the_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from deploy import lock\n"
        "with lock.held(Path(sys.argv[1]), 'rollback'): print('held', flush=True); time.sleep(600)"
    )
    file = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", code, str(file)], cwd=REPO, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout and holder.stdout.readline() == b"held\n"
            said = rf"`rollback` of .* \(process {holder.pid}\) works on this host since \d\d:"
            with pytest.raises(UserError, match=said), lock.held(file, "apply"):
                pass
        finally:
            holder.kill()
    with lock.held(file, "apply"):
        assert json.loads(file.read_text())["pid"] == os.getpid()


def test_who_only_looks_keeps_nobody_out(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    with open(file) as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.3, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with lock.held(file, "apply"):
            assert lock.holder(file)["verb"] == "apply"


def test_the_holder_of_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid, what = ports.holder(port) or (None, "")
        assert pid == os.getpid() and "python" in what
    assert ports.holder(port) is None


#: Listens, and has no command any more, like a process that is ending; ends when told to.
ENDING = """
import ctypes, socket, sys
server = socket.create_server(("127.0.0.1", 0))
start, end = map(int, open("/proc/self/stat").read().rsplit(") ", 1)[1].split()[45:47])
ctypes.memset(start, 0, end - start)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_ending_may_give_its_port_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ENDING], **pipes) as ending:
        port = int(ending.stdout.readline())
        assert ports.holder(port) == (ending.pid, "")
        with monkeypatch.context() as patch:
            patch.setattr(ports, "ENDING", 0.0)
            assert ports.settled(port) == (ending.pid, ""), "it does not end"
        threading.Timer(0.3, ending.stdin.close).start()
        assert ports.settled(port) is None


def _serve(script: list[bytes | float]) -> int:
    """Answer one connection on a new port: send bytes, sleep seconds."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with server, server.accept()[0] as peer:
            peer.recv(1 << 16)
            for item in script:
                try:
                    time.sleep(item) if isinstance(item, float) else peer.sendall(item)
                except OSError:
                    return

    threading.Thread(target=answer, daemon=True).start()
    return server.getsockname()[1]


OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def test_an_answer_is_json_or_nothing() -> None:
    assert http.ask(_serve([OK % 8, b'{"a": 1}']), "/", timeout=5) == {"a": 1}
    assert http.ask(_serve([OK % 0]), "/", {"q": 1}, timeout=5) is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ([5.0], "no answer within 1 s"),
        ([OK % 100, *[b" ", 0.2] * 50], "no answer within 1 s"),
        ([b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"], "status 503: busy"),
        ([OK % 5, b"<htm>"], "not JSON"),
        ([b"SSH-2.0-OpenSSH\r\n"], "/health: "),
    ],
    ids=["silent", "dribbling", "busy", "not-json", "not-http"],
)
def test_a_bad_answer_is_named_in_time(script: list[bytes | float], said: str) -> None:
    with pytest.raises(http.NoAnswer, match=said):
        http.ask(_serve(script), "/health", timeout=1)


def test_nobody_there() -> None:
    with pytest.raises(http.NoAnswer, match="refused"):
        http.ask(ports.free(), "/health", timeout=1)


def test_arguments_of_a_server(tmp_path: Path) -> None:
    pair = Pair("tiny", Path("/pairs/tiny"))
    entry = world.make_entry(tmp_path, budget=15, server=(("device", "cpu"), ("bare", True), ("left-out", False)))
    assert " ".join(unit.arguments(entry, pair)) == (
        "--model-path /pairs/tiny/target --served-model-name tiny --host 127.0.0.1 "
        "--speculative-algorithm DDTREE --speculative-draft-model-path /pairs/tiny/drafter --speculative-ddtree-budget 15 "
        "--device cpu --bare"
    )
    slot = Slot("gpu4", 30001, 31001, 2, (4, 5))
    own = unit.command(Path("/python"), ("--a",), slot, "r1")[3:]
    assert " ".join(own) == "--a --port 30001 --nccl-port 31001 --tp-size 2 --weight-version r1"
    assert unit.environment({"CUDA_VISIBLE_DEVICES": "all"}, Layout(tmp_path), slot, "r1")["CUDA_VISIBLE_DEVICES"] == "4,5"
    plain = unit.arguments(world.make_entry(tmp_path, algorithm=NONE), pair)
    assert not any("speculative" in word or "drafter" in word for word in plain)


def test_an_environment_that_a_file_cannot_hold_is_refused() -> None:
    assert unit.environment_file({"B": "x=y", "A": ""}) == "A=\nB=x=y\n"
    with pytest.raises(ValueError, match="variable A"):
        unit.environment_file({"A": "one\ntwo"})


def cli(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy", *args],
        cwd=REPO,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_status_of_a_host_that_was_never_used(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.toml"
    text = (REPO / "deploy" / "hosts.toml").read_text()
    inventory.write_text(text.replace(".cache/sandbox", str(tmp_path / "root")).replace("30000", str(ports.free())))
    plain = cli("status", "--inventory", str(inventory))
    assert plain.returncode == 0 and "none" in plain.stdout and "\x1b" not in plain.stdout
    machine = json.loads(cli("status", "--json", "--inventory", str(inventory)).stdout)
    assert machine["current"] is None and machine["instances"] == [] and machine["serves"] is False
    assert cli("logs", "--inventory", str(inventory)).stdout == ""


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (("plan", "--host", "ct200"), {}, "error: hosts.toml has no host 'ct200'; it has: sandbox"),
        (("status",), {"PORT": "60000"}, "error: PORT is '60000', must be a number from 1024 to 55535"),
        (("fly",), {}, "invalid choice"),
    ],
)
def test_usage_mistakes_end_with_2(args: tuple[str, ...], env: dict[str, str], said: str) -> None:
    ended = cli(*args, **env)
    assert ended.returncode == 2 and said in ended.stderr and "Traceback" not in ended.stderr


def test_a_root_that_nothing_can_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"the lock .*/file/lock can't be taken: File exists"),
        lock.held(tmp_path / "file" / "lock", "x"),
    ):
        pass


def test_a_host_that_fails_at_its_connection_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    good = world.make_entry(tmp_path / "root")
    bad = dataclasses.replace(good, name="bad", root=tmp_path / "loop")
    assert fleet.run([bad, good], lambda host, _: verbs.state(host), json=True) == 4
    first, second = json.loads(capsys.readouterr().out)["hosts"]
    assert "loop" in first["error"] and second["host"] == good.name and "error" not in second
