"""Commands on a host over SSH: known hosts only, and a deadline on every step of the way.

Fabric reads ~/.ssh/config (names, ports, users, keys, jump hosts) and connects; the commands then run on paramiko's channels,
which carry bytes. Left alone, both trust any host key and wait an hour for a channel; everything below `_connect` is
there to take that back. `StrictHostKeyChecking no` in a user's configuration is not honoured.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools.transport.base import BLOCK, Process, Transport, Unreachable

if TYPE_CHECKING:  # Importing them takes longer than many a local command.
    import fabric
    import paramiko

#: Seconds for each step of connecting: TCP, key exchange, banner, authentication, opening a channel.
CONNECT = 10.0
#: Seconds between keepalives; an idle link that a firewall dropped is noticed by them.
KEEPALIVE = 15
#: Seconds after which a peer that acknowledges nothing is gone. paramiko's keepalive alone never notices.
SILENCE = 30

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its threads' errors reach us as exceptions


class Ssh(Transport):
    """One host over SSH; it connects at the first command and keeps the connection for the next ones.

    `host` is a name of ~/.ssh/config or `[user@]name[:port]`. `user`, `port`, `jump` (such a name too) and `identity` (a key's
    file) come before what ~/.ssh/config says.
    """

    def __init__(
        self, host: str, *, user: str | None = None, port: int | None = None, jump: str | None = None, identity: str | None = None
    ) -> None:
        self.name = host
        self._user, self._port, self._jump, self._identity = user, port, jump, identity
        self._connection: fabric.Connection | None = None

    def start(self, argv: Sequence[str]) -> Process:
        # The shell stays the parent: it turns a death by signal into an exit status, which a lost connection never has.
        command = shlex.join(["sh", "-c", '"$@"; exit $?', "sh", *argv])
        if self._connection is None or not self._connection.is_connected:
            self._connection = self._connect()
        try:
            with self._errors(), _limit(CONNECT, self.close):  # paramiko sets no limit to the answer to a command
                channel = self._connection.transport.open_session(timeout=CONNECT)
                channel.exec_command(command)
        except Unreachable:
            self.close()
            raise
        return _RemoteProcess(channel, self.close)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        while connection:
            connection.close()
            connection = connection.gateway if hasattr(connection.gateway, "close") else None

    def _connect(self) -> fabric.Connection:
        import fabric

        limits = {"banner_timeout": CONNECT, "auth_timeout": CONNECT, "channel_timeout": CONNECT}
        if self._identity:
            limits["key_filename"] = str(Path(self._identity).expanduser())
        config = fabric.Config(overrides={"timeouts": {"connect": CONNECT}, "connect_kwargs": limits})
        gateway = fabric.Connection(self._jump, config=config) if self._jump else None
        connection = fabric.Connection(self.name, user=self._user, port=self._port, gateway=gateway, config=config)
        hops = [connection]
        while isinstance(hops[-1].gateway, fabric.Connection):
            hops.append(hops[-1].gateway)
        for hop in hops:
            _load_known_hosts(hop)
            hop.client.set_missing_host_key_policy(_Refuse())
        try:
            for hop in reversed(hops):
                with self._errors(hop):
                    hop.open()
                    _watch(hop.transport)
        except BaseException:
            for hop in hops:
                hop.close()
            raise
        return connection

    @contextlib.contextmanager
    def _errors(self, hop: fabric.Connection | None = None) -> Iterator[None]:
        """Say in one sentence why the host, or the hop on the way to it, can't be reached."""
        import paramiko

        try:
            yield
        except paramiko.BadHostKeyException as error:
            entry = f"[{hop.host}]:{hop.port}" if hop and hop.port != 22 else error.hostname
            raise Unreachable(
                f"{self.name}: the host key of {entry} has changed: known_hosts has {error.expected_key.fingerprint}, the host "
                f"offers {error.key.fingerprint}; only if it was really reinstalled, remove the old one: ssh-keygen -R '{entry}'"
            ) from error
        except paramiko.AuthenticationException as error:
            raise Unreachable(f"{self.name}: login refused ({error}); try: ssh {self.name} true") from error
        except socket.gaierror as error:
            raise Unreachable(f"{self.name}: no such host name ({error.strerror})") from error
        except TimeoutError as error:
            raise Unreachable(f"{self.name}: no answer within {CONNECT:g} s") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            if str(error).startswith("Timeout"):  # paramiko's own, for a channel; it has no class of its own
                raise Unreachable(f"{self.name}: no answer within {CONNECT:g} s") from error
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"{self.name}: cannot connect: {why}") from error


class _Refuse:
    """The policy for a host that no known_hosts file names."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        name, _, port = hostname.strip("[").partition("]:")
        scan = f"ssh-keyscan -p {port} {name}" if port else f"ssh-keyscan {name}"
        raise Unreachable(
            f"{hostname} is not in known_hosts, so it is not trusted; it offers {key.get_name()} {key.fingerprint}. Compare "
            f"that with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there), then: {scan} >> ~/.ssh/known_hosts"
        )


def _load_known_hosts(hop: fabric.Connection) -> None:
    users = hop.ssh_config.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    system = hop.ssh_config.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts")
    for file in (Path(name).expanduser() for name in f"{users} {system}".split()):
        if file.is_file():
            hop.client.load_system_host_keys(str(file))


def _watch(transport: paramiko.Transport) -> None:
    transport.set_keepalive(KEEPALIVE)
    if isinstance(transport.sock, socket.socket):  # a jump's inner hop rides on a channel
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE * 1000)


@contextlib.contextmanager
def _limit(seconds: float, close: Callable[[], None]) -> Iterator[None]:
    """Raise `TimeoutError` if the block takes longer; `close` is what makes its blocked call return."""
    expired = threading.Event()
    timer = threading.Timer(seconds, lambda: (expired.set(), close()))
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if expired.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


class _RemoteProcess(Process):
    def __init__(self, channel: paramiko.Channel, close: Callable[[], None]) -> None:
        self._channel, self._close = channel, close
        self.stdin = channel.makefile_stdin("wb")  # unbuffered
        self.stdout = channel.makefile("rb", BLOCK)
        self.stderr = channel.makefile_stderr("rb", BLOCK)

    def wait(self, seconds: float) -> int | None:
        return self._channel.exit_status if self._channel.status_event.wait(seconds) else None

    def kill(self) -> None:
        # The link may be what is broken: a channel's own close would wait for it.
        self._close()
