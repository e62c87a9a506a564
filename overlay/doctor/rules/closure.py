"""R6: what each package requires is there in a version that it takes, requirements behind extras included.

torch asks for its CUDA libraries through `cuda-toolkit[cublas,...]`, whose own requirements hang on those extras;
`pip check` doesn't follow them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from overlay.doctor import cuda
from overlay.doctor.dist import normal
from overlay.doctor.facts import Distribution, Facts
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

#: Packages whose absence or wrong version breaks the engine's libraries, not only one feature.
_CUDA = re.compile(r"(nvidia-|cuda-|torch|triton)")


def requirements(facts: Facts) -> Iterator[Finding]:
    """R6. Looks at what is there: packages that nothing here asks for are not missed."""
    found = {one.name: one for one in facts.distributions}
    wrong: dict[str, list[tuple[Distribution, Requirement]]] = {}
    for one, extras in _reached(facts, found):
        for requirement in _wanted(facts, one, extras):
            name = normal(requirement.name)
            if not _satisfied(facts, found.get(name), requirement):
                wrong.setdefault(name, []).append((one, requirement))
    for name, wants in sorted(wrong.items()):
        yield _finding(facts, name, found.get(name), wants)


def _reached(facts: Facts, found: dict[str, Distribution]) -> list[tuple[Distribution, frozenset[str]]]:
    """Every package, with all the extras that some other one asks of it."""
    extras: dict[str, set[str]] = {name: set() for name in found}
    todo = list(found)
    while todo:
        one = found[todo.pop()]
        for requirement in _wanted(facts, one, frozenset(extras[one.name])):
            name = normal(requirement.name)
            if name in found and not requirement.extras <= extras[name]:
                extras[name] |= requirement.extras
                todo.append(name)
    return [(found[name], frozenset(asked)) for name, asked in extras.items()]


def _wanted(facts: Facts, one: Distribution, extras: frozenset[str]) -> list[Requirement]:
    environment = {
        **default_environment(),
        "python_version": facts.python,
        "python_full_version": f"{facts.python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    wanted = []
    for text in one.requires or ():
        try:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)):
                wanted.append(requirement)
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue
    return wanted


def _satisfied(facts: Facts, one: Distribution | None, requirement: Requirement) -> bool:
    if one is None:
        return False
    try:
        return requirement.specifier.contains(Version(facts.version(one.name) or one.version), prereleases=True)
    except InvalidVersion:
        return True


def _finding(facts: Facts, name: str, one: Distribution | None, wants: list[tuple[Distribution, Requirement]]) -> Finding:
    asked = [f"{by.name} {facts.version(by.name)} requires {_spoken(requirement)}" for by, requirement in wants]
    hard = bool(_CUDA.match(name)) and any(_CUDA.match(by.name) for by, _ in wants)
    severity = Severity.NOTE if common.is_cpu(facts) and hard else Severity.ERROR if hard else Severity.WARNING
    specifiers = sorted({str(requirement.specifier) for _, requirement in wants})
    remedy = f"{name} {' and '.join(filter(None, specifiers))}".strip()
    torch = next((requirement for by, requirement in wants if by.name == "torch"), None)
    if name == "cuda-bindings" and torch is not None and "<13" in str(torch.specifier):
        remedy = common.full_set()
    consequence = f"pip: {asked[0]}, {'which is not installed' if one is None else f'but you have {name} {one.version}'}"
    if cuda.is_cuda(_library(name)):
        consequence += f"; at run time: ImportError: {_library(name)}: cannot open shared object file"
    if len(wants) > 1 or _CUDA.match(name):
        consequence += " (`pip check` is silent where an extra stands between)"
    return Finding(
        "R6",
        severity,
        f"{name} is missing" if one is None else f"{name} {facts.version(name)} is not the version that is required",
        tuple(Evidence(text, owner=by.name) for text, (by, _) in zip(asked, wants, strict=True)),
        consequence,
        remedy,
    )


def _spoken(requirement: Requirement) -> str:
    return f"{normal(requirement.name)}{requirement.specifier}"


def _library(package: str) -> str:
    name = re.sub(r"^nvidia-(cuda-)?|-cu\d\d$", "", package)
    return {"runtime": "libcudart", "cusparselt": "libcusparseLt", "nvjitlink": "libnvJitLink", "nvshmem": "libnvshmem_host"}.get(
        name, f"lib{name}"
    )
