"""A host's GPUs, each asked alone and against a deadline: a dead one makes nvidia-smi fail or hang for all that it is asked
about together, and one in a broken driver does not even end when it is killed. Standard library only: it travels to hosts.
"""

from __future__ import annotations

import csv
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

#: Seconds for one question.
DEADLINE = 10.0
NO_TOOL = "there is no nvidia-smi on this host"
_FIELDS = (
    "uuid", "name", "driver_version", "pci.bus_id", "memory.total", "memory.used",
    "ecc.errors.uncorrected.volatile.total", "remapped_rows.pending", "remapped_rows.failure",
)  # fmt: skip


@dataclass(frozen=True)
class Process:
    """Who uses memory."""

    pid: int
    name: str
    used: int | None  # MiB
    ours: bool = False  # one of the host's servers


@dataclass(frozen=True)
class Gpu:
    """One GPU; with a `fault`, why it can't be used, nothing else is known of it."""

    index: int
    fault: str | None = None
    uuid: str = ""
    name: str = ""
    driver: str = ""
    total: int | None = None  # MiB
    used: int | None = None  # MiB
    uncorrected: int | None = None  # memory errors since the driver was loaded
    remapping: str | None = None  # "pending" until the next reset, or "failed"
    processes: tuple[Process, ...] = ()
    xids: tuple[str, ...] = ()  # lines of the kernel's log


class NoAnswer(Exception):
    """Why a command gave none."""


def read(wanted: tuple[int, ...], own: set[int], since: float | None) -> tuple[Gpu, ...]:
    """The wanted GPUs. `own`: the servers' processes; `since`: what the kernel said from then on counts, or from its start."""
    if not wanted:
        return ()
    with ThreadPoolExecutor(len(wanted) + 1) as pool:
        log = pool.submit(_xids, since)
        return tuple(pool.map(lambda index: _read(index, own, log.result), wanted))


def ask(*words: str, seconds: float = DEADLINE) -> str:
    """What a command says. Raises `NoAnswer`; one that can't be killed is left behind."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    try:
        process = subprocess.Popen(words, text=True, errors="replace", **pipes)
    except FileNotFoundError:
        raise NoAnswer(f"there is no {words[0]} on this host") from None
    except OSError as error:
        raise NoAnswer(f"{words[0]} does not start: {error.strerror}") from None
    try:
        said = process.communicate(timeout=seconds)[0].strip()
    except subprocess.TimeoutExpired:
        process.kill()
        raise NoAnswer(f"{words[0]} said nothing within {seconds:.0f} s") from None
    if process.returncode:
        raise NoAnswer(f"{words[0]} ended with {process.returncode}: {' '.join(said.split())[-200:] or 'it said nothing'}")
    return said


def query(index: int, what: str, *fields: str) -> list[list[str]]:
    """nvidia-smi's rows of `fields` for one GPU; `what`: gpu or compute-apps."""
    said = ask("nvidia-smi", f"--id={index}", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in row] for row in csv.reader(said.splitlines()) if row]
    if any(len(row) != len(fields) for row in rows):
        raise NoAnswer(f"nvidia-smi said {' '.join(said.split())[:200]!r}")
    return rows


def _read(index: int, own: set[int], log: object) -> Gpu:
    try:
        rows = query(index, "gpu", *_FIELDS)
        if len(rows) != 1 or not rows[0][0].startswith("GPU-"):
            raise NoAnswer(f"nvidia-smi said {rows!r}")
        users = query(index, "compute-apps", "pid", "process_name", "used_memory")
    except NoAnswer as error:
        return Gpu(index, fault=str(error))
    uuid, name, driver, bus, total, used, uncorrected, pending, failure = rows[0]
    processes = tuple(Process(int(pid), who, _number(size), int(pid) in own) for pid, who, size in users if pid.isdigit())
    slot = re.sub(r"\.\d$", "", bus).lower()[-len("0000:00:00") :]
    return Gpu(
        index, None, uuid, name, driver, _number(total), _number(used), _number(uncorrected),
        "failed" if failure == "Yes" else "pending" if pending == "Yes" else None,
        processes, tuple(line for line in log() if slot in line.lower()),
    )  # fmt: skip


def _number(text: str) -> int | None:
    """None for what the GPU does not count, such as [N/A]."""
    return int(text) if text.isdigit() else None


def _xids(since: float | None) -> tuple[str, ...]:
    """The driver's complaints in the kernel's log; none where the log can't be read."""
    begin = f"--since=@{since:.0f}" if since else "--boot"
    try:
        said = ask("journalctl", "_TRANSPORT=kernel", "--no-pager", "--output=cat", begin)
    except NoAnswer:
        return ()
    return tuple(line.strip() for line in said.splitlines() if "NVRM" in line and ("Xid" in line or "fallen off the bus" in line))
