"""The smallest consistent set of packages that a host lacks, from facts alone; pure.

A release's site root comes before the host's own packages and hides what it brings. What torch's libraries find by their
path relative to torch's own root (NVIDIA's packages), and what is built against torch, can only be brought together with
torch: so the set is either a few packages that nothing is linked to by path, or everything that is bound to torch and CUDA.
Whatever is proposed is judged by the doctor's own rules before it is told.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from overlay.doctor import cuda, known, layers, rules
from overlay.doctor.facts import Distribution, Facts
from overlay.doctor.finding import Finding, Severity
from overlay.doctor.rules import common
from overlay.profiles import Profile

#: Packages that the rest is linked to by path or by symbol: one of them changes, all change.
_ROOT = ("torch", "triton", "nvidia-", "cuda-")


@dataclass(frozen=True, slots=True)
class Row:
    """One package that is not the same in both."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class Solution:
    """What to bring to B, or why nothing can be."""

    bring: tuple[tuple[str, str], ...] = ()  # package, version
    drift: tuple[Row, ...] = ()  # every package bound to torch and CUDA that differs
    errors: tuple[Finding, ...] = ()  # of B, as it is
    refused: str | None = None  # why there is no such set
    instead: str | None = None  # what would do
    scope: str = "nothing"  # nothing, some, abi


def solve(a: Facts, b: Facts, profile: Profile, names: tuple[str, str] = ("A", "B")) -> Solution:
    """What of A (another host's facts, or a lock's) B needs, for the pinned SGLang."""
    drift = _drift(a, b, profile)
    errors = _errors(b)
    refused = _refuse(a, b, profile, names)
    if refused:
        return Solution((), drift, errors, *refused)
    wanted = {row.name: row.a for row in drift if row.a and profile.select([row.name], "abi")}
    guilty = {name for one in errors for name in _blamed(one)} | unmet(b)
    chosen = {name for name in wanted if name in guilty or any(old in guilty for old in layers.OLD_NAMES.get(name, ()))}
    if not chosen and not errors:
        return Solution((), drift, errors, scope="nothing")
    if not any(name.startswith(_ROOT) for name in chosen) and not any(name.startswith(_ROOT) for name in guilty & set(wanted)):
        some = _closed(chosen, a, b, wanted)
        if some and not _errors(after(a, b, some)):
            return _told(some, a, drift, errors, "some")
    every = {one.name for one in a.distributions if profile.select([one.name], "abi")}
    every = _closed(every, a, b, {one.name: one.version for one in a.distributions})
    left = _errors(after(a, b, every))
    if left:
        first = left[0]
        return Solution((), drift, errors, f"even with all of {names[0]}'s set: {first.rule}: {first.title}", first.remedy)
    return _told(every, a, drift, errors, "abi")


def after(a: Facts, b: Facts, names: set[str]) -> Facts:
    """B's facts as they would be with these packages of A in front of B's own."""
    front = dataclasses.replace(
        a,
        distributions=tuple(one for one in a.distributions if one.name in names),
        libraries=tuple(one for one in a.libraries if one.owner in names),
        labels={name: text for name, text in a.labels.items() if name in names},
        damage=(),
    )
    return dataclasses.replace(layers.over(front, b), root=b.root)


def _errors(facts: Facts) -> tuple[Finding, ...]:
    return tuple(one for one in rules.examine(facts) if one.severity is Severity.ERROR)


def _blamed(finding: Finding) -> set[str]:
    """Packages that a finding is about. In R1 it is not torch, whose CUDA is the measure."""
    owners = {one.owner for one in finding.evidence if one.owner}
    return owners - {"torch"} if finding.rule == "R1" else owners


def _drift(a: Facts, b: Facts, profile: Profile) -> tuple[Row, ...]:
    of_a, of_b = ({one.name: facts.version(one.name) for one in facts.distributions} for facts in (a, b))
    odd = {name for name in of_a.keys() | of_b.keys() if not _same(name, of_a.get(name), of_b.get(name), a, b)}
    bound = set(profile.select(odd, "abi")) | {old for olds in layers.OLD_NAMES.values() for old in olds if old in odd}
    return tuple(Row(name, of_a.get(name), of_b.get(name)) for name in sorted(bound))


def _same(name: str, of_a: str | None, of_b: str | None, a: Facts, b: Facts) -> bool:
    if name == "torch" and of_a and of_b:
        return (of_a.split("+")[0], common.torch_cuda(a)) == (of_b.split("+")[0], common.torch_cuda(b))
    if of_a and of_b and "+" not in of_a + of_b:
        return of_a == of_b
    # A lock has no labels: what is the same but for one is the same, if both are for the same CUDA.
    bare = of_a and of_b and of_a.split("+")[0] == of_b.split("+")[0]
    label = cuda.of_label(of_a) or common.torch_cuda(a), cuda.of_label(of_b) or common.torch_cuda(b)
    return bool(of_a == of_b or (bare and label[0] == label[1]))


def _refuse(a: Facts, b: Facts, profile: Profile, names: tuple[str, str]) -> tuple[str, str] | None:
    """Why there is no set of A's for B, and what would do."""
    built = common.torch_cuda(a)
    ours = f"the profile {profile.name} (leave A out)"
    if a.version("torch") is None:
        return f"{names[0]} has no torch, so nothing can be taken from it", ours
    if built is None or built[0] < 13:
        has = f"CUDA {cuda.dotted(built)}" if built else "no CUDA"
        why = "it requires cuda-python>=13.0, and torch 2.11.0 for CUDA 12 requires cuda-bindings<13"
        return f"{names[0]} has {common.torch_name(a)}: sglang 0.5.11 has no set for {has}, since {why}", ours
    wrong = _errors(dataclasses.replace(a, host=None, maps={}))
    if wrong:
        return (
            f"{names[0]} is not sound itself: {wrong[0].rule}: {wrong[0].title}",
            f"mend it first ({wrong[0].remedy}), or {ours}",
        )
    driver = cuda.version(b.host.driver if b.host else None)
    if driver and driver[0] < cuda.oldest_driver((built[0], 0)):
        oldest = cuda.oldest_driver((built[0], 0))
        return (
            f"{names[1]}'s driver {b.host.driver} is too old for CUDA {cuda.dotted(built)}, which needs branch {oldest}",
            f"an NVIDIA driver of branch {oldest} or newer on {names[1]}; there is no set for an older one",
        )
    if b.python not in profile.pythons:
        return f"{names[1]} has Python {b.python}, and {profile.name} is locked for {', '.join(profile.pythons)}", "one of these"
    if a.kind == "tree" and a.python != b.python:
        return (
            f"{names[0]} has Python {a.python} and {names[1]} has {b.python}: {names[0]}'s files are for another interpreter",
            f"{ours}, whose lock for Python {b.python} has the same versions",
        )
    return None


def unmet(b: Facts) -> set[str]:
    """What the pinned SGLang requires of the packages that decide, and B has not."""
    missing = set()
    for text in known.REQUIRES["sglang", "0.5.11"]:
        wanted = Requirement(text)
        found = b.version(wanted.name)
        if found is None or not wanted.specifier.contains(found, prereleases=True):
            missing.add(wanted.name)
    return missing


def _closed(chosen: set[str], a: Facts, b: Facts, wanted: dict[str, str]) -> set[str]:
    """The packages, and whatever of A they require and B does not have in a version that does."""
    of_a = {one.name: one for one in a.distributions}
    closed, queue = set(), sorted(chosen)
    while queue:
        name = queue.pop()
        if name in closed or name not in of_a:
            continue
        closed.add(name)
        for requirement in _requirements(of_a[name], a.python):
            found = b.version(requirement.name)
            met = found is not None and requirement.specifier.contains(found, prereleases=True)
            if not met and requirement.name in wanted:
                queue.append(requirement.name)
    return closed


def _requirements(one: Distribution, python: str) -> list[Requirement]:
    found = []
    environment = {"extra": "", "python_version": python, "python_full_version": f"{python}.0"}
    for text in one.requires or ():
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is None or wanted.marker.evaluate(environment):
            found.append(wanted)
    return found


def _told(names: set[str], a: Facts, drift: tuple[Row, ...], errors: tuple[Finding, ...], scope: str) -> Solution:
    bring = tuple((name, a.version(name) or "") for name in sorted(names))
    return Solution(bring, drift, errors, scope=scope)
