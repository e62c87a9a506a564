"""Commands on this machine and on hosts: nothing waits for ever, and a result is never guessed.

    with Ssh("gpu1") as host:
        free = host.run(["df", "-P", "/opt"], timeout=20).check().stdout
        with host.stream(["tar", "-cf", "-", "-C", "/opt", "sglang"], timeout=300) as archive: ...

`Local` and `Ssh` behave the same. Every command runs under coreutils' `timeout` where it runs, so it ends there even when
this side is gone; a second, slightly later deadline here ends the wait when the link is gone. A command that ended by a
signal gives 128 + signal; a connection that was lost raises `Unreachable`, so no exit status stands for two things.

An argument list is visible to every user of a machine: secrets travel as `input`, never in `argv`.
"""

from tools.transport.base import Completed, TimedOut, Transport, Unreachable
from tools.transport.local import Local
from tools.transport.ssh import Ssh

__all__ = ["Completed", "Local", "Ssh", "TimedOut", "Transport", "Unreachable", "to"]


def to(host: str | None) -> Transport:
    """The transport to `host`, a name that ~/.ssh/config may know; None and "local" are this machine."""
    return Local() if host in (None, "local") else Ssh(host)
