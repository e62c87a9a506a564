"""A real OpenSSH server on 127.0.0.1, as a plain process, with keys, accounts and a known_hosts of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

SSHD = "/usr/sbin/sshd"


class Sshd:
    """The server and, in `home`, what its user needs: ~/.ssh with a key, the server's host key, and the name `box`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.port = _free_port()
        self._server: subprocess.Popen[bytes] | None = None
        ssh = self.home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        self.known_hosts = ssh / "known_hosts"
        self._config = ssh / "config"
        _make_key(ssh / "id_ed25519")
        self.new_host_key()
        self.trust()
        self._config.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n  IdentityFile {ssh}/id_ed25519\n"
        )

    def new_host_key(self) -> None:
        """Give the server another host key; it takes effect at the next connection."""
        (self.folder / "host_key").unlink(missing_ok=True)
        _make_key(self.folder / "host_key")

    def trust(self) -> None:
        """Put the server's host key into the user's known_hosts."""
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {(self.folder / 'host_key.pub').read_text()}")

    def configure(self, text: str) -> None:
        """Add to the user's ~/.ssh/config."""
        with self._config.open("a") as file:
            file.write(text)

    def start(self) -> None:
        assert Path(SSHD).exists(), "these tests need OpenSSH's server: apt-get install openssh-server"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where a privileged sshd shuts itself in before login
        # HOME is set for the sessions too: what the real user's shell does when it starts is no part of a test, and a session
        # that a test kills in the middle of it would leave that half done.
        config = self.folder / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.home}/.ssh/id_ed25519.pub\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n"
            f"PermitRootLogin yes\nSetEnv HOME={self.home}\n"
        )
        log = (self.folder / "sshd.log").open("ab")
        self._server = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stdout=log, stderr=log, start_new_session=True)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"sshd does not listen:\n{(self.folder / 'sshd.log').read_text()}")

    def sessions(self) -> list[int]:
        """The processes of its open sessions, the nearest to the server first."""
        return _descendants(self._server.pid)

    def freeze(self) -> None:
        """Stop every session and all that runs in it, as a host that hangs; the kernel still answers for it."""
        for pid in self.sessions():
            # One that has ended since it was listed needs no stopping.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def stop(self) -> None:
        """End the server and its sessions."""
        if self._server is None:
            return
        for pid in [*self.sessions(), self._server.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server.wait()
        self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _make_key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", file], check=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [found for child in children for found in (child, *_descendants(child))]
