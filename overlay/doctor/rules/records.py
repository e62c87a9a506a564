"""R0, R5 and R13: what is installed is whole, and no two packages own one file.

`nvidia-X-cu12` and `nvidia-X-cu13` hold the same paths: removing the one takes the other's files and leaves its
metadata, so installers believe that it is there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from overlay.doctor import known
from overlay.doctor.facts import LIBRARY, Distribution, Entry, Facts
from overlay.doctor.finding import Evidence, Finding, Severity
from overlay.doctor.rules import common

_SAID = {"size": "size", "hash": "sha256"}


def readable(facts: Facts) -> Iterator[Finding]:
    """R0: files that could not be read, each with its reason."""
    owners = {entry.path: one.name for one in facts.distributions for entry in one.record or ()}
    for one in facts.damage:
        owner = owners.get(one.path)
        library = bool(LIBRARY.search(one.path))
        yield Finding(
            "R0",
            common.weight(facts, one.path) if library else Severity.WARNING,
            f"{one.path}: {one.why}",
            (Evidence(one.why, one.path, owner=owner),),
            f"ImportError: {one.path}: file too short, or: invalid ELF header" if library else "nothing that it says is checked",
            f"install {owner} {facts.version(owner)} anew, into a new root" if owner else "remove it, or mend its permissions",
        )


def integrity(facts: Facts) -> Iterator[Finding]:
    """R5: every file of every RECORD is there, as large as it says, and owned once."""
    for one in facts.distributions:
        yield from _outside(one)
        if one.record is None:
            continue
        payload = [entry for entry in one.record if not _metadata_or_bytecode(entry.path)]
        if not one.record:
            yield Finding(
                "R5",
                Severity.WARNING,
                f"{one.name} {one.version} has an empty RECORD, so none of its files can be verified",
                (Evidence("RECORD has no line", owner=one.name),),
                "a broken or half removed package looks like a whole one",
                f"install {one.name}=={one.version} anew, into a new root",
            )
            continue
        missing = [entry for entry in payload if entry.found == "missing"]
        if missing:
            yield _missing(facts, one, payload, missing)
        yield from _changed(facts, one, payload)
    yield from _shared(facts)


def _missing(facts: Facts, one: Distribution, payload: list[Entry], missing: list[Entry]) -> Finding:
    hollow = len(missing) == len(payload)
    libraries = [entry for entry in missing if LIBRARY.search(entry.path)]
    grave = (hollow or libraries) and not (common.is_cpu(facts) and one.name.startswith("nvidia-"))
    sources = [entry for entry in missing if entry.path.endswith(".py")]
    first = (libraries or sources or missing)[0].path
    name = first.rsplit("/", 1)[-1]
    return Finding(
        "R5",
        Severity.ERROR if grave else Severity.WARNING if sources else Severity.NOTE,
        f"{one.name} {one.version} is hollow: its metadata is there, its files are not"
        if hollow
        else f"{len(missing)} of the {len(payload)} files of {one.name} {one.version} are missing",
        tuple(Evidence("missing", entry.path, owner=one.name) for entry in (libraries or sources or missing)),
        f"ImportError: {name}: cannot open shared object file: No such file or directory; and pip says that it is installed"
        if libraries
        else f"ModuleNotFoundError or FileNotFoundError: {first}",
        f"{one.name}=={one.version} in a new root (pip install --force-reinstall repairs it only until the next removal)",
    )


def _changed(facts: Facts, one: Distribution, payload: list[Entry]) -> Iterator[Finding]:
    changed = [entry for entry in payload if entry.found in ("size", "hash")]
    libraries = [entry for entry in changed if LIBRARY.search(entry.path)]
    sources = [entry for entry in changed if entry.path.endswith(".py")]
    rest = [entry for entry in changed if entry not in libraries and entry not in sources]
    for severity, entries, consequence in (
        (Severity.ERROR, libraries, "ImportError: file too short, or undefined symbols: the file is not the package's"),
        (Severity.WARNING, sources, "the code that runs is not what the version says"),
        (Severity.NOTE, rest, "none that is known: it is data"),
    ):
        if entries:
            yield Finding(
                "R5",
                severity,
                f"{len(entries)} {'file' if len(entries) == 1 else 'files'} of {one.name} {one.version} "
                f"{'is' if len(entries) == 1 else 'are'} not what RECORD says",
                tuple(Evidence(f"another {_SAID[entry.found]}", entry.path, owner=one.name) for entry in entries),
                consequence,
                f"{one.name}=={one.version} in a new root",
            )
    links = [entry for entry in payload if entry.found == "link"]
    if links:
        yield Finding(
            "R5",
            Severity.WARNING,
            f"{len(links)} files of {one.name} {one.version} are links that lead out of the root, and were not looked at",
            tuple(Evidence("a link out of the root", entry.path, owner=one.name) for entry in links),
            "whoever changes the target changes this environment",
            f"install {one.name}=={one.version} with copies (uv: --link-mode=copy)",
        )


def _outside(one: Distribution) -> Iterator[Finding]:
    if one.outside:
        yield Finding(
            "R5",
            Severity.WARNING,
            f"the RECORD of {one.name} {one.version} names files outside of the root, which were not looked at",
            tuple(Evidence("outside of the root", path, owner=one.name) for path in one.outside),
            "an uninstall of this package removes files that are not its own",
            f"get {one.name}=={one.version} from where its hash is known",
        )


def _shared(facts: Facts) -> Iterator[Finding]:
    owners: dict[str, list[tuple[Distribution, Entry]]] = defaultdict(list)
    for one in facts.distributions:
        for entry in one.record or ():
            if not _metadata_or_bytecode(entry.path):
                owners[entry.path].append((one, entry))
    pairs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, entries in owners.items():
        if len({one.name for one, _ in entries}) > 1 and len({entry.sha256 for _, entry in entries}) > 1:
            pairs[tuple(sorted({one.name for one, _ in entries}))].append(path)
    for names, paths in sorted(pairs.items()):
        libraries = [path for path in paths if LIBRARY.search(path)]
        sources = [path for path in paths if path.endswith(".py")]
        yield Finding(
            "R5",
            Severity.WARNING if libraries or sources else Severity.NOTE,
            f"{' and '.join(names)} own {len(paths)} {'path' if len(paths) == 1 else 'paths'} together, with different bytes",
            tuple(Evidence("one of them overwrote the other's", path, owner=" and ".join(names)) for path in libraries or paths),
            "removing or downgrading one of them breaks the other, which stays installed in name",
            f"a new root with only one of {', '.join(names)}",
        )


def dual(facts: Facts) -> Iterator[Finding]:
    """R13: one CUDA library is there for one CUDA major only."""
    families: dict[str, dict[int, Distribution]] = defaultdict(dict)
    for one in facts.distributions:
        match = re.fullmatch(r"(nvidia-[a-z0-9-]+?)(?:-cu(\d\d))?", one.name)
        if match and (match[2] or match[1] in known.UNSUFFIXED):
            families[match[1]][int(match[2] or 13)] = one
    both = {family: found for family, found in families.items() if len(found) > 1}
    built = common.torch_cuda(facts)
    for family, found in sorted(both.items()):
        shared = set.intersection(
            *({entry.path for entry in one.record or () if LIBRARY.search(entry.path)} for one in found.values())
        )
        other = [one for major, one in found.items() if built is None or major != built[0]]
        keep = [one for one in found.values() if one not in other] or list(found.values())[-1:]
        yield Finding(
            "R13",
            Severity.ERROR if shared else Severity.WARNING,
            f"{family} is installed for CUDA {' and '.join(str(major) for major in sorted(found))}"
            + (", in the same files" if shared else ""),
            tuple(Evidence(f"{one.name}=={one.version}", min(shared, default=None), owner=one.name) for one in found.values()),
            "two runtimes in one process: libnvrtc-builtins or libcudart of the wrong major, or "
            "ImportError: cannot open shared object file as soon as one of the two is removed",
            f"a new root with {', '.join(f'{one.name}=={one.version}' for one in keep)} and without "
            f"{', '.join(one.name for one in other if one not in keep) or 'the other'}; do not uninstall in place",
        )


def _metadata_or_bytecode(path: str) -> bool:
    return ".dist-info/" in path or path.endswith(".pyc")
