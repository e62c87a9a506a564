"""Which CUDA libraries a process has mapped, and whether they are the ones that its release is made for.

Two copies of the CUDA runtime, of cuBLAS or of NCCL in one process disagree about one GPU, and a copy from elsewhere is
another version than what torch was tested with: both work until the first graph or the first all_reduce. Standard library
only: it travels to hosts.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

#: One of each in a process. `libcublasLt` is not `libcublas`.
_ONCE = re.compile(r"(libcudart|libcublas|libnccl)([-.][^/]*)?\.so(\.|$)")


def read(pid: int) -> tuple[str, ...]:
    """The files of these libraries that the process has mapped, sorted; none if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    paths = {line.split(maxsplit=5)[5].removesuffix(" (deleted)") for line in lines if line.count("/")}
    return tuple(sorted(path for path in paths if path.startswith("/") and _ONCE.match(PurePosixPath(path).name)))


def judge(pid: int, files: tuple[str, ...], site: Path | None) -> list[str]:
    """What is wrong with a process's files. `site`: the import root that all must be from; None: any one, the same for all."""
    loaded: dict[str, list[str]] = {}
    for file in files:
        match = _ONCE.match(PurePosixPath(file).name)
        if match and not _private(file):
            loaded.setdefault(match[1], []).append(file)
    findings = [
        f"process {pid} has {len(copies)} copies of {name} loaded: {' and '.join(copies)}"
        for name, copies in loaded.items()
        if len(copies) > 1
    ]
    found = [file for copies in loaded.values() for file in copies]
    if site is not None:
        where, foreign = f"outside the release ({site})", [file for file in found if not PurePosixPath(file).is_relative_to(site)]
    else:
        roots = {file: _root(file) for file in found}
        where, foreign = "from different environments", found if len(set(roots.values())) > 1 else []
    if foreign:
        findings.append(f"process {pid} loaded {', '.join(foreign)} {where}: start it without LD_LIBRARY_PATH")
    return findings


def _private(file: str) -> bool:
    """Whether it is a copy that a wheel brings under a name of its own (auditwheel's NAME.libs), which nothing else links to."""
    return PurePosixPath(file).parent.name.endswith(".libs")


def _root(file: str) -> str:
    """The import root of a library, or its folder where it is in none."""
    parts = PurePosixPath(file).parts
    for package in ("nvidia", "torch"):
        if package in parts:
            return str(PurePosixPath(*parts[: parts.index(package)]))
    return str(PurePosixPath(file).parent)
