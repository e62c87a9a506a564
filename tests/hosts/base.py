"""The system that every test host starts from: Debian with systemd, OpenSSH and Python, made once and shared read-only.

It lies in the user's cache under the hash of its recipe, so that another recipe makes another base.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tools.paths import STORE

SUITE = "bookworm"
PACKAGES = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "libpam-systemd",
    "openssh-server",
    "openssh-client",
    "python3",
    "sudo",
    "iproute2",
    "procps",
    "login",
    "passwd",
    "e2fsprogs",
    "libstdc++6",
    "libgomp1",
    "libfaketime",
]
#: Left out: nobody reads them on a test host.
_UNREAD = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
#: Units without a purpose in a container.
_MASKED = [
    "systemd-resolved",
    "systemd-networkd",
    "systemd-timesyncd",
    "systemd-udevd",
    "systemd-udev-trigger",
    "getty@tty1",
    "console-getty",
    "systemd-journald-audit.socket",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount",
    "dev-hugepages.mount",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "systemd-update-utmp",
    "systemd-update-utmp-runlevel",
]
_SSHD = "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\nMaxStartups 100\nMaxSessions 100\n"
_RECIPE = repr((SUITE, PACKAGES, _UNREAD, _MASKED, _SSHD, "1"))


def build() -> Path:
    """The base's root folder; about a minute at the first call, nothing afterwards. Another process's build is waited for."""
    place = STORE / "hosts" / f"base-{hashlib.sha256(_RECIPE.encode()).hexdigest()[:12]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            temporary = place.with_suffix(".new")
            shutil.rmtree(temporary, ignore_errors=True)
            _make(temporary)
            temporary.rename(place)
    return place


def _make(root: Path) -> None:
    unread = [f"--dpkgopt=path-exclude={pattern}" for pattern in _UNREAD]
    _run("mmdebstrap", "--quiet", "--variant=essential", "--dpkgopt=force-unsafe-io", *unread,
         f"--include={','.join(PACKAGES)}", SUITE, str(root))  # fmt: skip
    subprocess.run(["chroot", root, "systemctl", "--quiet", "mask", *_MASKED], check=True, stderr=subprocess.DEVNULL)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()  # every host gets its own
    (root / "etc/ssh/sshd_config.d/tests.conf").write_text(_SSHD)
    (root / "etc/fstab").write_text("")
    _run("chroot", str(root), "useradd", "-m", "-s", "/bin/bash", "deploy")
    rule = root / "etc/sudoers.d/deploy"
    rule.write_text("deploy ALL=(ALL) NOPASSWD: ALL\n")
    os.chmod(rule, 0o440)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
