"""A place for one server on a host: what tells it from the others there. Standard library only: it travels to hosts."""

from __future__ import annotations

from dataclasses import dataclass

#: The only slot of a host that has no topology.
ENGINE = "engine"
#: The nccl port is this much above the HTTP port unless it is given, the gRPC port always: SGLang derives it.
NCCL, GRPC = 1000, 10000


@dataclass(frozen=True)
class Slot:
    """`<service>@<name>`: `tp` ranks on `gpus` (none: what it finds)."""

    name: str
    port: int  # HTTP
    nccl_port: int  # where its ranks meet
    tp: int = 1
    gpus: tuple[int, ...] = ()

    @property
    def ports(self) -> tuple[int, ...]:
        """All that its server listens on, or takes for granted that it could."""
        return (self.port, self.nccl_port, self.port + GRPC)

    def clashes(self, other: Slot) -> bool:
        """Whether both can't run at once."""
        return bool(self.name == other.name or set(self.gpus) & set(other.gpus) or set(self.ports) & set(other.ports))


def words(name: str) -> str:
    """The slot's server in a sentence."""
    return "the server" if name == ENGINE else f"the server {name}"


def single(port: int, tp: int = 1, gpus: tuple[int, ...] = ()) -> Slot:
    """The one slot of a host without a topology."""
    return Slot(ENGINE, port, port + NCCL, tp, gpus)
