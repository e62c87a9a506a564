"""How a server is started: pure functions from an inventory entry to arguments, environment and unit. No I/O."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from deploy.inventory import NONE, Entry
from deploy.layout import Layout
from deploy.pairs import Pair
from deploy.slot import Slot

#: Restarts that a supervisor tries within the window (seconds) before it gives up; pauses (seconds) double in between.
RESTARTS, WINDOW, PAUSE, LONGEST_PAUSE = 4, 600, 1, 30
#: A log over this size (bytes) is put aside when the server starts.
LOG_BYTES = 16 << 20


def arguments(entry: Entry, pair: Pair) -> tuple[str, ...]:
    """The arguments that a release's servers share; the release's own id is not among them."""
    flags: dict[str, Any] = {
        "model-path": pair.target,
        "served-model-name": pair.name,
        "host": "127.0.0.1",
    }
    if entry.algorithm != NONE:
        flags |= {"speculative-algorithm": entry.algorithm, "speculative-draft-model-path": pair.drafter}
    if entry.algorithm == "DDTREE":
        flags["speculative-ddtree-budget"] = entry.budget
    return tuple(render({**flags, **dict(entry.server)}))


def render(flags: dict[str, Any]) -> list[str]:
    """`--name value` for each flag; True gives the bare flag, False none."""
    argv = []
    for name, value in flags.items():
        if value is not False:
            argv += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return argv


def command(python: Path, arguments: tuple[str, ...], slot: Slot, release: str) -> list[str]:
    """The whole command line of a slot's server, which reports `release` back as its weight version."""
    own = render({"port": slot.port, "nccl-port": slot.nccl_port, "tp-size": slot.tp, "weight-version": release})
    return [str(python), "-m", "sglang.launch_server", *arguments, *own]


def environment(base: dict[str, str], layout: Layout, slot: Slot, release: str) -> dict[str, str]:
    """The server's environment: the overlay's, with the release's own import root and caches.

    Nothing of a release is ever written: the overlay's byte code comes with it, and compiled kernels go to a folder beside it.
    """
    cache = layout.root / "cache" / release
    gpus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, slot.gpus))} if slot.gpus else {}
    return {
        **base,
        **gpus,  # numbered as nvidia-smi does
        "PYTHONPATH": str(layout.release(release) / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "SGLANG_CACHE_DIR": str(cache / "sglang"),
        "FLASHINFER_WORKSPACE_BASE": str(cache / "flashinfer"),
        "TVM_FFI_CACHE_DIR": str(cache / "tvm-ffi"),
        "SGLANG_ATTEST_DIR": str(layout.attest(slot.name)),
    }


def environment_file(env: dict[str, str]) -> str:
    """One NAME=value a line, as systemd's EnvironmentFile and the supervisor read it."""
    for name, value in env.items():
        if "\n" in value or "=" in name:
            raise ValueError(f"the environment variable {name} can't be written to a file: {value!r}")
    return "".join(f"{name}={value}\n" for name, value in sorted(env.items()))


def engine(argv: list[str], environment_file: Path, entry: Entry, release: str) -> dict[str, Any]:
    """The supervisor's unit."""
    return {
        "release": release,
        "argv": argv,
        "environment_file": str(environment_file),
        "drain": entry.limits.drain,
        "restarts": RESTARTS,
        "window": WINDOW,
        "pause": PAUSE,
        "longest_pause": LONGEST_PAUSE,
        "log_bytes": LOG_BYTES,
    }


#: What stands for the release's folder in arguments: the folder's name is made from them.
RELEASE = "@release@"


def template(entry: Entry, root: Path) -> str:
    """systemd's template unit; an instance is what `instances/%i` links to."""
    link, run = root / "instances" / "%i", root / "run" / "%i"
    return f"""\
[Unit]
Description=SGLang %i, the release that {link} links to
After=network.target {entry.service}-revert.service
StartLimitIntervalSec={WINDOW}
StartLimitBurst={RESTARTS + 1}

[Service]
Type=exec
WorkingDirectory={run}
EnvironmentFile={link}/env/%i.env
ExecStartPre=/bin/rm -rf {run}/attest
ExecStartPre=/bin/mkdir -p {run}/attest
ExecStart=/bin/sh {link}/units/%i
Restart=on-failure
RestartSec={PAUSE}
KillMode=mixed
TimeoutStopSec={entry.limits.drain:g}
LimitMEMLOCK=infinity
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
"""


def script(argv: list[str]) -> str:
    """What the unit runs: the server's command line."""
    return f"exec {shlex.join(argv)}\n"
