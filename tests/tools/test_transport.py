"""Commands end with what they really did: here and over a real SSH connection, also when the link or the host is bad."""

from __future__ import annotations

import getpass
import io
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd import Sshd
from tools.cli import UserError
from tools.transport import Local, Ssh, TimedOut, Transport, Unreachable, base, to


@pytest.fixture(params=["local", "ssh"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    if request.param == "local":
        yield Local()
    else:
        request.getfixturevalue("sshd")
        with Ssh("box") as ssh:
            yield ssh


@pytest.fixture
def box(sshd: Sshd) -> Iterator[Ssh]:
    with Ssh("box") as ssh:
        yield ssh


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "GRACE", 0.5)


FAILING = ["sh", "-c", "echo no disk >&2; exit 4"]


def test_status_and_both_outputs_come_back(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "cat; printf '\\377\\000' >&2; exit 3"], input=b"\x00\xfe", timeout=10)
    assert (done.rc, done.stdout, done.stderr) == (3, b"\x00\xfe", b"\xff\x00")


def test_arguments_reach_the_command_as_they_are(transport: Transport) -> None:
    argv = ["a b", "$HOME", "'", '"', "\n", "*", "", "ü", "-n", ";false"]
    assert transport.run(["printf", "%s\\0", *argv], timeout=10).stdout.decode().split("\0")[:-1] == argv


def test_large_input_and_outputs_pass_at_once(transport: Transport) -> None:
    data = os.urandom(8_000_000)
    done = transport.run(["sh", "-c", "tee /dev/stderr"], input=io.BytesIO(data), timeout=60)
    assert done.stdout == data and done.stderr == data


def test_a_command_that_ignores_its_input_is_no_error(transport: Transport) -> None:
    assert transport.run(["true"], input=bytes(8_000_000), timeout=10).rc == 0


def test_input_that_cannot_be_read_is_an_error_and_ends_the_command(transport: Transport, tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int = -1) -> bytes:
            if block := super().read(4):
                return block
            raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        transport.run(["sh", "-c", f"cat >/dev/null; touch {tmp_path}/took-half-for-all"], input=Broken(b"half"), timeout=600)
    assert not (tmp_path / "took-half-for-all").exists()


def test_death_by_signal_is_an_exit_status(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "kill -9 $$"], timeout=10).rc == 128 + signal.SIGKILL


def test_a_missing_command_is_an_exit_status(transport: Transport) -> None:
    done = transport.run(["no-such-command"], timeout=10)
    assert done.rc == 127
    with pytest.raises(UserError, match=r"no-such-command.*failed with exit status 127.*No such file"):
        done.check()


def test_a_command_ends_where_it_runs_at_its_deadline(transport: Transport) -> None:
    with pytest.raises(TimedOut, match=r"`sleep 4217` did not end within 0\.3 s"):
        transport.run(["sleep", "4217"], timeout=0.3)
    assert Local().run(["pgrep", "-f", "^sleep 4217"], timeout=10).rc == 1


def test_124_before_the_deadline_is_the_commands_own(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "exit 124"], timeout=30).rc == 124


def test_a_daemon_that_holds_the_output_does_not_outlast_the_deadline(transport: Transport, short_grace: None) -> None:
    with pytest.raises(TimedOut):
        transport.run(["sh", "-c", "setsid sleep 20 & exit 0"], timeout=0.5)


def test_a_stream_is_read_as_it_comes(transport: Transport) -> None:
    with transport.stream(["sh", "-c", "echo one; read never </dev/null; echo two"], timeout=10) as stream:
        assert [stream.readline(), stream.read()] == [b"one\n", b"two\n"]


def test_a_failing_stream_raises_with_what_it_said(transport: Transport) -> None:
    with pytest.raises(UserError, match="exit status 4: no disk"), transport.stream(FAILING, timeout=10) as stream:
        stream.read()


def test_the_cause_at_the_source_outranks_the_symptom(transport: Transport) -> None:
    with pytest.raises(UserError, match="no disk") as caught, transport.stream(FAILING, timeout=10):
        raise ValueError("unexpected end")
    assert isinstance(caught.value.__cause__, ValueError)


def test_leaving_a_stream_early_ends_a_command_that_writes(transport: Transport) -> None:
    with pytest.raises(KeyError), transport.stream(["sh", "-c", "while echo 4218; do sleep 0.05; done"], timeout=60):
        raise KeyError
    for _ in range(100):
        if Local().run(["pgrep", "-f", "^sh -c while echo 4218"], timeout=10).rc == 1:
            return
        time.sleep(0.05)
    pytest.fail("the command still runs")


def test_names_ports_and_users_come_from_ssh_config(box: Ssh) -> None:
    assert box.run(["id", "-un"], timeout=10).stdout.decode().strip() == getpass.getuser()


def test_one_connection_serves_many_commands(sshd: Sshd, box: Ssh) -> None:
    box.run(["true"], timeout=10)
    before = sshd.sessions()
    assert box.run(["true"], timeout=10).rc == 0
    assert sshd.sessions() == before


def test_an_unknown_host_key_is_refused_and_named(sshd: Sshd, box: Ssh) -> None:
    sshd.known_hosts.write_text("")
    told = rf"\[127.0.0.1\]:{sshd.port} is not in known_hosts.*SHA256:.*ssh-keyscan -p {sshd.port} 127.0.0.1 >>"
    with pytest.raises(Unreachable, match=told):
        box.run(["true"], timeout=10)
    assert sshd.known_hosts.read_text() == ""


def test_an_unknown_host_key_is_refused_even_if_ssh_would_accept_it(sshd: Sshd, box: Ssh) -> None:
    sshd.known_hosts.write_text("")
    sshd.configure("  StrictHostKeyChecking no\n")
    with pytest.raises(Unreachable, match="not in known_hosts"):
        box.run(["true"], timeout=10)


def test_a_changed_host_key_is_refused(sshd: Sshd, box: Ssh) -> None:
    sshd.new_host_key()  # read anew for each connection
    with pytest.raises(Unreachable, match=rf"has changed.*ssh-keygen -R '\[127.0.0.1\]:{sshd.port}'"):
        box.run(["true"], timeout=10)


def test_a_refused_login_says_so(sshd: Sshd, box: Ssh) -> None:
    (sshd.home / ".ssh" / "id_ed25519.pub").write_text("")
    with pytest.raises(Unreachable, match="login refused"):
        box.run(["true"], timeout=10)


def test_a_dead_port_says_so(sshd: Sshd, box: Ssh) -> None:
    sshd.stop()
    with pytest.raises(Unreachable, match="box: cannot connect"):
        box.run(["true"], timeout=10)


def test_an_unknown_name_says_so() -> None:
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid: no such host name"):
        Ssh("no-such-host.invalid").run(["true"], timeout=10)


def test_a_jump_host_is_used_and_its_key_checked_too(sshd: Sshd) -> None:
    sshd.configure(f"Host far\n  HostName 127.0.0.1\n  Port {sshd.port}\n  ProxyJump box\n")
    with Ssh("far") as far:
        assert far.run(["echo", "here"], timeout=10).stdout == b"here\n"
    sshd.known_hosts.write_text("")
    with pytest.raises(Unreachable, match="not in known_hosts"), Ssh("far") as far:
        far.run(["true"], timeout=10)


def test_a_lost_connection_is_not_an_exit_status_and_the_next_command_reconnects(sshd: Sshd, box: Ssh) -> None:
    talk = ["sh", "-c", "echo up; sleep 30"]
    with pytest.raises(Unreachable, match="connection was lost"), box.stream(talk, timeout=60) as stream:
        stream.readline()
        for pid in sshd.sessions():
            os.kill(pid, signal.SIGKILL)
    assert box.run(["echo", "again"], timeout=10).stdout == b"again\n"


def test_the_deadline_ends_a_frozen_host(sshd: Sshd, box: Ssh, short_grace: None) -> None:
    with pytest.raises(TimedOut), box.stream(["sh", "-c", "echo up; sleep 30"], timeout=0.5) as stream:
        assert stream.readline() == b"up\n"
        sshd.freeze()
        stream.read()


def test_a_host_that_freezes_between_commands_is_given_up(sshd: Sshd, box: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.transport.ssh.CONNECT", 0.5)
    box.run(["true"], timeout=10)
    sshd.freeze()
    with pytest.raises(Unreachable, match="no answer within"):
        box.run(["true"], timeout=10)


def test_a_host_that_freezes_before_it_answers_is_given_up(sshd: Sshd, box: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.transport.ssh.CONNECT", 1.0)
    box.run(["true"], timeout=10)
    connected = box._connection.transport
    real = connected.open_session

    def open_then_freeze(**options: float) -> object:
        channel = real(**options)
        sshd.freeze()
        return channel

    monkeypatch.setattr(connected, "open_session", open_then_freeze)
    with pytest.raises(Unreachable, match="no answer within"):
        box.run(["true"], timeout=10)


def test_hosts_by_name() -> None:
    assert isinstance(to(None), Local) and isinstance(to("local"), Local) and to("box").name == "box"
