"""Real hosts on this machine: systemd as process 1 and OpenSSH, each with a root, a network and processes of its own.

    with Site() as site, site.entered():
        host = site.host("ct200")
        host.sh("systemctl is-system-running --wait")

All of them are joined by a bridge in a network namespace without a way out; a test enters it, so nothing that it sends can
leave the machine, even while a host's link is down. Names carry this process's id, so two runs don't meet; what a killed run
left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.hosts import base
from tools.paths import STORE

_RUNS = STORE / "hosts" / "runs"
_NETWORK = "10.77.0"
_HIERARCHIES = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup")
_CLONE_NEWNET = 0x40000000
#: ext4's way to lose what is not on the disk (_IOR('X', 125, u32)), without writing its journal first.
_SHUTDOWN, _NOLOGFLUSH = 0x8004587D, 2
#: What a host with a disk has on it, under the names there.
_ON_DISK = {"opt": "/opt", "units": "/etc/systemd/system"}
#: How the container's own loop is told from a shutdown: a reboot ends nspawn with 133.
_LOOP = 'for c; do [ "$c" = -- ] && break; shift; echo $$ > "$c"; done; shift; while :; do "$@"; [ $? = 133 ] || exit; done'


class Site:
    """The hosts of one test run, their network, and the key that opens them."""

    def __init__(self) -> None:
        self.name = f"sgt{os.getpid()}"
        self.folder = _RUNS / self.name
        self.namespace = f"{self.name}-ctl"
        self.key = self.folder / "id"
        self.hosts: dict[str, Machine] = {}

    def __enter__(self) -> Self:
        _sweep()
        self.base = base.build()
        self.folder.mkdir(parents=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", str(self.key))
        _run("ip", "netns", "add", self.namespace)
        for words in ("link set lo up", "link add br0 type bridge", f"addr add {_NETWORK}.1/24 dev br0", "link set br0 up"):
            _run("ip", "-n", self.namespace, *words.split())
        return self

    def __exit__(self, *_: object) -> None:
        for host in list(self.hosts.values()):
            host.remove()
        _run("ip", "netns", "del", self.namespace)
        shutil.rmtree(self.folder)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, in the hosts' network."""
        with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{self.namespace}") as inside:
            _setns(inside.fileno())
            try:
                yield
            finally:
                _setns(before.fileno())

    def host(self, name: str, **how: object) -> Machine:
        """A fresh host, booted and answering."""
        number = next(n for n in range(10, 250) if n not in {host.number for host in self.hosts.values()})
        self.hosts[name] = Machine(self, name, number, **how)
        self.hosts[name].boot()
        return self.hosts[name]


class Machine:
    """One host. `systemd=False`: only its SSH server runs. `disk`: /opt and its units lie on an ext4 file system of its own."""

    def __init__(self, site: Site, name: str, number: int, *, systemd: bool = True, disk: bool = False) -> None:
        self.site, self.name, self.number, self.systemd = site, name, number, systemd
        self.address = f"{_NETWORK}.{number}"
        self.folder = site.folder / name
        self.root = self.folder / "root"
        self.namespace = f"{site.name}-{name}"
        self.binds: list[str] = []
        self._loop: subprocess.Popen[bytes] | None = None
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        layers = f"lowerdir={site.base},upperdir={self.folder}/upper,workdir={self.folder}/work"
        _run("mount", "-t", "overlay", self.namespace, "-o", layers, str(self.root))
        self._furnish()
        if disk:
            self._add_disk()
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        peer = ("type", "veth", "peer", "name", "host0", "netns", self.namespace)
        _run("ip", "-n", site.namespace, "link", "add", self._cable, *peer)
        _run("ip", "-n", site.namespace, "link", "set", self._cable, "master", "br0", "up")
        _run("ip", "-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "host0")
        _run("ip", "-n", self.namespace, "link", "set", "host0", "up")

    @property
    def _cable(self) -> str:
        return f"v{self.number}"

    def _furnish(self) -> None:
        (self.root / "etc/hostname").write_text(self.name + "\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {self.name}\n")
        self.new_host_key()
        public = self.site.key.with_suffix(".pub").read_text()
        for home, owner in (("root", 0), ("home/deploy", 1000)):
            ssh = self.root / home / ".ssh"
            ssh.mkdir(mode=0o700, exist_ok=True)
            (ssh / "authorized_keys").write_text(public)
            for path in (ssh, ssh / "authorized_keys"):
                os.chown(path, owner, owner)

    @property
    def disk(self) -> Path:
        """Where the test sees the disk."""
        return self.folder / "disk"

    def _add_disk(self) -> None:
        image = self.folder / "disk.img"
        self.disk.mkdir()
        with open(image, "wb") as file:
            file.truncate(1 << 30)
        _run("mkfs.ext4", "-q", "-F", "-N", "8192", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image))
        self._mount_disk()
        for name, place in _ON_DISK.items():
            shutil.copytree(self.root / place[1:], self.disk / name, symlinks=True)
            self.binds.append(f"--bind={self.disk / name}:{place}")
        os.sync()

    def _mount_disk(self) -> None:
        # The journal waits for an fsync: what nobody asked to be on the disk is lost for certain.
        # A device of its own each time: a host beside this one may still hold the dead file system, which `-o loop` would find.
        image = str(self.folder / "disk.img")
        device = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=True).stdout.strip()
        _run("mount", "-o", "commit=600", device, str(self.disk))
        _run("losetup", "--detach", device)  # once nobody has it mounted

    def lose_power(self) -> None:
        """What is not on the disk is lost; then it starts again."""
        handle = os.open(self.disk, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _NOLOGFLUSH))
        finally:
            os.close(handle)
        self.kill()
        _run("umount", "--lazy", str(self.disk))
        self._mount_disk()
        self.boot()

    def new_host_key(self) -> None:
        """Another host key; a running server has it after a reload."""
        key = self.root / "etc/ssh/ssh_host_ed25519_key"
        key.unlink(missing_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key))

    @property
    def known_hosts(self) -> str:
        """The host's line for a known_hosts file."""
        return f"{self.address} {(self.root / 'etc/ssh/ssh_host_ed25519_key.pub').read_text()}"

    def boot(self) -> None:
        """Start it and wait until its SSH server answers."""
        groups = [Path(top, self.namespace) for top in _HIERARCHIES if Path(top, "cgroup.procs").exists()]
        for group in groups:
            group.mkdir(exist_ok=True)  # its own: two containers in one group would manage each other's services
        if self.systemd:
            command = [
                "systemd-nspawn", "--quiet", f"--directory={self.root}", f"--machine={self.name}", "--boot", "--register=no",
                "--keep-unit", f"--network-namespace-path=/run/netns/{self.namespace}", "--resolv-conf=off", "--timezone=off",
                "--console=read-only", *self.binds,
            ]  # fmt: skip
        else:
            (self.root / "run/sshd").mkdir(exist_ok=True)
            mounts = "mount -t proc proc /proc && exec /usr/sbin/sshd -D -e"
            command = ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork",
                       "--kill-child", "chroot", str(self.root), "sh", "-c", mounts]  # fmt: skip
        with open(self.folder / "console", "ab") as console:
            self._loop = subprocess.Popen(
                ["sh", "-c", _LOOP, "host", *[str(group / "cgroup.procs") for group in groups], "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
        self.wait()

    def wait(self, seconds: float = 60) -> None:
        """Wait until it answers over SSH."""
        end = time.monotonic() + seconds
        while self.try_sh("true").returncode:
            if time.monotonic() > end or self._loop is None or self._loop.poll() is not None:
                raise RuntimeError(f"{self.name} does not answer:\n{(self.folder / 'console').read_text()[-2000:]}")
            time.sleep(0.1)

    def try_sh(self, script: str, *, input: bytes | None = None, timeout: float = 120) -> subprocess.CompletedProcess[bytes]:
        """Run a shell script there as root: the test's own eyes and hands, by OpenSSH's client."""
        (self.folder / "known_hosts").write_text(self.known_hosts)
        options = {
            "UserKnownHostsFile": self.folder / "known_hosts",
            "BatchMode": "yes",
            "ConnectTimeout": 3,
            "LogLevel": "ERROR",
        }
        argv = ["nsenter", f"--net=/run/netns/{self.site.namespace}", "ssh", "-F", "none", "-i", str(self.site.key)]
        argv += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        command = [*argv, f"root@{self.address}", script]
        return subprocess.run(command, capture_output=True, check=False, timeout=timeout, **stdin)

    def sh(self, script: str, **how: object) -> str:
        """The same; its output, or an error."""
        done = self.try_sh(script, **how)
        assert done.returncode == 0, f"{script}: {done.returncode}: {(done.stdout + done.stderr).decode()}"
        return done.stdout.decode().strip()

    def wait_for(self, script: str, seconds: float = 60) -> None:
        """Wait until the script succeeds there."""
        end = time.monotonic() + seconds
        while self.try_sh(script).returncode:
            assert time.monotonic() < end, f"{self.name}: `{script}` did not come true within {seconds:.0f} s"
            time.sleep(0.3)

    def cut(self) -> None:
        """Pull the network cable: nothing is refused, nothing arrives."""
        _run("ip", "-n", self.site.namespace, "link", "set", self._cable, "down")

    def mend(self) -> None:
        """Plug it in again."""
        _run("ip", "-n", self.site.namespace, "link", "set", self._cable, "up")

    def kill(self) -> None:
        """Take its power. By its control group: a killed nspawn would leave the host's processes behind."""
        if self._loop is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._loop.pid, signal.SIGKILL)  # first, or it would start the host again
        for _ in range(200):
            for group in (Path(top, self.namespace) for top in _HIERARCHIES):
                if (group / "cgroup.kill").exists():
                    (group / "cgroup.kill").write_text("1")
            if not _populated(self.namespace):
                break
            time.sleep(0.05)
        self._loop.wait()
        self._loop = None

    def remove(self) -> None:
        """End it and take away all that it was."""
        self.kill()
        self.site.hosts.pop(self.name, None)
        _remove(self.namespace, self.folder)
        subprocess.run(["ip", "-n", self.site.namespace, "link", "del", self._cable], stderr=subprocess.DEVNULL, check=False)


def _populated(group: str) -> bool:
    events = [Path(top, group, "cgroup.events") for top in _HIERARCHIES]
    return any("populated 1" in file.read_text() for file in events if file.exists())


def _remove(namespace: str, folder: Path) -> None:
    """Unmount and delete what a host had; its processes are gone."""
    inside = [
        line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1].startswith(f"{folder}/")
    ]
    for mount in reversed(inside):
        subprocess.run(["umount", "--lazy", mount], check=False)
    if Path("/run/netns", namespace).exists():
        _run("ip", "netns", "del", namespace)
    for top in _HIERARCHIES:
        group = Path(top, namespace)
        if group.is_dir():
            for path, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what runs left whose process is gone."""
    for run in _RUNS.glob("sgt*"):
        if not Path("/proc", run.name.removeprefix("sgt")).exists():
            for folder in run.iterdir():
                if folder.is_dir():
                    for top in _HIERARCHIES:
                        kill = Path(top, f"{run.name}-{folder.name}", "cgroup.kill")
                        if kill.exists():
                            kill.write_text("1")
                    _remove(f"{run.name}-{folder.name}", folder)
            subprocess.run(["ip", "netns", "del", f"{run.name}-ctl"], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(run, ignore_errors=True)


def _setns(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.returncode}: {done.stdout + done.stderr}")
