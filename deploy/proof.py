"""Patched means proved: the server says which release it is, and its processes have loaded exactly that release's code.

Pure: what was read from the server goes in, what is wrong with it comes out. An empty list of findings is the proof.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import mapped
from deploy.manifest import Manifest
from deploy.slot import Slot

#: The module that only the processes that run the model have loaded, one a rank.
_WORKER = "sglang.srt.model_executor.model_runner"
#: Findings shown at most.
_SHOWN = 5


@dataclass(frozen=True)
class Attested:
    """What one live process loaded. `modules`: name -> (file, sha256 of the bytes that it was compiled from); none if it said
    nothing."""

    pid: int
    modules: dict[str, tuple[str, str]]
    libraries: tuple[str, ...] = ()  # of CUDA, that it has mapped


@dataclass(frozen=True)
class Proof:
    """The evidence, counted, and what speaks against it."""

    findings: tuple[str, ...]
    processes: int = 0  # that loaded code of the package
    modules: int = 0  # loaded, each with the hash of its manifest
    touched: int = 0  # of these, from files of the series
    libraries: int = 0  # of CUDA, each once in a process, from one root


def read_attested(file: Path) -> Attested:
    """One process's record; a last line that is being written is left out."""
    modules = {}
    for line in file.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "module" in entry:
            modules[entry["module"]] = (entry["file"], entry["sha256"])
    return Attested(int(file.stem), modules)


def identity(manifest: Manifest, slot: Slot, server: dict[str, Any], model: dict[str, Any]) -> list[str]:
    """What the server's `/server_info` and `/model_info` say otherwise than the manifest."""
    wanted = {
        "release (weight version)": (manifest.release, model.get("weight_version")),
        "SGLang version": (manifest.version, server.get("version")),
        "algorithm": (manifest.algorithm, server.get("speculative_algorithm")),
        "tensor parallel size": (slot.tp, server.get("tp_size")),
    }
    if manifest.algorithm == "DDTREE":
        wanted["tree budget"] = (manifest.budget, server.get("speculative_ddtree_budget"))
    return [
        f"{what}: expected {expected}, the server says {said}" for what, (expected, said) in wanted.items() if expected != said
    ]


def loaded(manifest: Manifest, slot: Slot, site: Path, processes: tuple[Attested, ...]) -> Proof:
    """Judge what the processes loaded: every module from a file under `site`, with the manifest's hash; CUDA's libraries
    once each, under `site` too unless the release leaves them to the host."""
    findings: list[str] = []
    modules: set[str] = set()
    touched: set[str] = set()
    for process in processes:
        for name, (file, sha) in process.modules.items():
            try:
                path = Path(file).relative_to(site).as_posix()
            except ValueError:
                findings.append(f"process {process.pid} loaded {name} from {file}, outside the release")
                continue
            if manifest.files.get(path) != sha:
                findings.append(f"process {process.pid} loaded {path} with other bytes than the release has ({sha[:12]})")
            modules.add(path)
            if path in manifest.touched:
                touched.add(path)
        findings += mapped.judge(process.pid, process.libraries, None if manifest.scope == "code" else site)
    serving = [process for process in processes if process.modules]
    workers = sum(_WORKER in process.modules for process in serving)
    if workers != slot.tp:
        findings.append(f"{workers} live processes have attested that they run the model, expected {slot.tp}")
    if any(sha for sha in manifest.touched.values()) and not touched:
        findings.append("no file of the series is loaded: the patches have no effect on this server")
    libraries = {file for process in processes for file in process.libraries}
    return Proof(tuple(findings), len(serving), len(modules), len(touched), len(libraries))


def sentence(findings: list[str] | tuple[str, ...]) -> str:
    """The first findings, in one sentence."""
    more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    return "; ".join(findings[:_SHOWN]) + more
