"""The hosts themselves: real services, apart from each other, and back after a loss of power."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.hosts.machines import Machine
from tools.transport import Ssh

Fresh = Callable[..., Machine]


def test_two_hosts_with_services_of_their_own(fresh: Fresh) -> None:
    one, two = fresh("ct129"), fresh("ct200")
    assert one.sh("systemctl is-system-running --wait") == "running"
    assert one.sh("hostname; cat /etc/machine-id") != two.sh("hostname; cat /etc/machine-id")
    for host in (one, two):
        host.sh("systemd-run --quiet --unit=work sleep 1000")
    one.sh("systemctl kill -s KILL work")
    assert two.sh("systemctl is-active work") == "active"
    assert one.try_sh("systemctl is-active work").stdout != b"active\n"


def test_a_host_without_power_comes_back_as_another_boot(fresh: Fresh) -> None:
    host = fresh()
    first = host.sh("cat /proc/sys/kernel/random/boot_id; touch /root/kept; sync -f /root")
    host.kill()
    host.boot()
    assert host.sh("cat /proc/sys/kernel/random/boot_id; ls /root/kept") != first


def test_a_cut_link_is_noticed_and_named(fresh: Fresh) -> None:
    host = fresh()
    with Ssh("ct200") as ssh:
        assert ssh.run(["hostname"], timeout=10).check().stdout == b"ct200\n"
    host.cut()
    begin = time.monotonic()
    assert host.try_sh("true").returncode
    assert time.monotonic() - begin > 1, "it was refused, not lost"
    host.mend()
    host.wait()


def test_a_host_without_systemd(fresh: Fresh) -> None:
    assert fresh("plain", systemd=False).try_sh("systemctl is-active ssh").returncode
