"""R4: every torch symbol that a library asks for is one that the torch beside it exports.

Kernel wheels don't declare which torch they were built for, so this is the only place where it can be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from overlay.doctor import symbols
from overlay.doctor.facts import Facts, Library
from overlay.doctor.finding import Evidence, Finding
from overlay.doctor.rules import common


def torch_symbols(facts: Facts) -> Iterator[Finding]:
    """R4 for torch's own symbols."""
    exported = facts.known_exports.union(*(one.exported for one in facts.libraries if one.path.startswith("torch/lib/")))
    if not exported:
        return
    for owner, libraries in common.by_owner(facts.libraries).items():
        available = exported.union(*(one.exported for one in libraries))
        broken = {}
        for one in libraries:
            missing = sorted(name for name in one.undefined - available if symbols.TORCH.match(name))
            if missing:
                broken[one] = missing
        broken = {one: missing for one, missing in broken.items() if not common.spared(one, broken, libraries)}
        if broken:
            yield _finding(facts, owner, broken, exported)


def other_symbols(facts: Facts) -> Iterator[Finding]:
    """R4 for NCCL, NVSHMEM and TVM FFI, where their library is in the tree."""
    for pattern, file in symbols.OTHERS:
        providers = [one for one in facts.libraries if one.name == file]
        exported = frozenset().union(*(one.exported for one in providers))
        if not exported:
            continue
        for owner, libraries in common.by_owner(facts.libraries).items():
            own = exported.union(*(one.exported for one in libraries))
            broken = {
                one: missing
                for one in libraries
                if file in one.needed and (missing := sorted(name for name in one.undefined - own if pattern.match(name)))
            }
            if broken:
                yield _finding(facts, owner, broken, exported, providers[0])


def _finding(
    facts: Facts, owner: str | None, broken: dict[Library, list[str]], exported: frozenset[str], by: Library | None = None
) -> Finding:
    missing = sorted({name for names in broken.values() for name in names})
    near = symbols.siblings(missing, exported)
    words = symbols.demangle([*missing, *near.values()])
    evidence = []
    for one, names in broken.items():
        for name in names:
            told = words[name]
            if name in near:
                told += f" (exported is {words[near[name]]})"
            if symbols.old_string(name):
                told += " (of the C++ ABI before _GLIBCXX_USE_CXX11_ABI=1)"
            evidence.append(Evidence(f"undefined: {told}", one.path, name, owner))
    who = f"{owner} {facts.version(owner)}" if owner else "a library of no installed package"
    subject = common.torch_name(facts) if by is None else f"{by.name} ({by.owner})"
    first = next(iter(broken))
    return Finding(
        "R4",
        common.worst(common.weight(facts, one.path) for one in broken),
        f"{who} was built for another version: {subject} does not export {len(missing)} of the symbols that it uses",
        tuple(evidence),
        f"ImportError: {first.path}: undefined symbol: {broken[first][0]}",
        common.mend(facts, owner) if by is None else f"the {by.owner} version that {owner} was built with",
    )
