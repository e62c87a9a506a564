"""Stage: the release is whole on the host's disk before anything that serves is touched."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.host import Host
from deploy.inputs import Inputs
from deploy.steps import Step


@dataclass(frozen=True)
class Stage(Step):
    """Lay out a new release; it stays after a failure, for a look at it, until it is pruned."""

    name = "stage"
    inputs: Inputs
    differs: tuple[str, ...] = ()  # from the current release, in lines

    def describe(self) -> str:
        return f"lay out release {self.inputs.release}"

    def details(self) -> tuple[str, ...]:
        lines = []
        for patch, changes in self.inputs.patches:
            lines.append(patch)
            lines += [f"  {change.file}  +{change.added} -{change.removed}" for change in changes]
        return (*(lines or ["the series is empty: SGLang as it was released"]), *self.differs)

    def apply(self, host: Host) -> str:
        made = host.stage(self.inputs)
        return f"{len(made.files)} files of its own, {made.linked} linked from the overlay"


@dataclass(frozen=True)
class Check(Step):
    """Verify a release that was staged earlier, before it serves again."""

    name = "check"
    release: str

    def describe(self) -> str:
        return f"check that release {self.release} is as it was staged"

    def apply(self, host: Host) -> str:
        host.verify(self.release)
        return f"{len(host.manifest(self.release).files)} files as in its manifest"
