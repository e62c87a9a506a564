"""What the machine adds to a tree: driver, GPUs, compilers, caches, search paths. Read-only; only nvidia-smi and ldconfig run,
each with a deadline, and what is not there is left empty."""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from overlay.doctor import cuda, dist, elf
from overlay.doctor.facts import LIBRARY, Cached, Gpu, Host, Tool

#: Seconds for one program; a GPU that is not well can hold nvidia-smi for ever.
_DEADLINE = 10.0
#: Files of the caches that are looked at.
_FILES = 20_000
_RELEASE = re.compile(rb"release (\d+)\.(\d+), V\d+\.\d+")


def read(root: Path, environment: Mapping[str, str]) -> Host:
    """The facts of this machine for the site root `root`, under the environment that the service would have."""
    driver, gpus = _gpus()
    system, listed = _linker_cache()
    folders = [entry for entry in environment.get("LD_LIBRARY_PATH", "").split(":") if entry]
    return Host(
        driver=driver or _loaded_driver(),
        gpus=gpus,
        tools=tuple(_tools(root, environment)),
        cached=tuple(_cached(environment)),
        shadows=tuple(sorted(set(_in_folders(folders)))),
        fallbacks=tuple(sorted(set(listed))),
        extra_sites=tuple(_extra_sites(root, environment)),
        system=system,
    )


def _run(*command: str) -> str:
    program = shutil.which(command[0]) or shutil.which(command[0], path="/sbin:/usr/sbin")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=_DEADLINE, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _gpus() -> tuple[str | None, tuple[Gpu, ...]]:
    return gpus_of(_run("nvidia-smi", "--query-gpu=driver_version,compute_cap,name", "--format=csv,noheader"))


def gpus_of(text: str) -> tuple[str | None, tuple[Gpu, ...]]:
    """Driver and GPUs from nvidia-smi's lines of driver version, compute capability and name."""
    driver, gpus = None, []
    for line in text.splitlines():
        version, capability, name = (*(part.strip() for part in line.split(",", 2)), "", "")[:3]
        pair = cuda.version(capability)
        if pair and re.match(r"\d+\.\d+", version):
            driver = version
            gpus.append(Gpu(name, pair[0] * 10 + pair[1]))
    return driver, tuple(gpus)


def _loaded_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return match[1] if match else None


def _linker_cache() -> tuple[frozenset[str], list[str]]:
    """Every soname of the system's linker cache, and the files of CUDA libraries in it."""
    pairs = re.findall(r"^\s+(\S+) \(.*\) => (\S+)$", _run("ldconfig", "-p"), re.MULTILINE)
    return frozenset(name for name, _ in pairs), [path for name, path in pairs if cuda.is_cuda(name)]


def _in_folders(folders: list[str]) -> Iterator[str]:
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names if LIBRARY.search(name) and cuda.is_cuda(name))


def _tools(root: Path, environment: Mapping[str, str]) -> Iterator[Tool]:
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    nvcc = os.path.join(home, "bin", "nvcc") if home else shutil.which("nvcc", path=environment.get("PATH", ""))
    if nvcc and os.path.isfile(nvcc):
        yield Tool("nvcc", nvcc, release_of(Path(nvcc)))
        header = Path(os.path.realpath(nvcc)).parent.parent / "include" / "cuda.h"
        if header.is_file():
            yield Tool("cuda.h", str(header), _header(header))
    chosen = environment.get("TRITON_PTXAS_PATH")
    if chosen:
        yield Tool("ptxas", chosen, release_of(Path(chosen)))
        return
    for name in ("ptxas", "ptxas-blackwell"):
        file = root / "triton" / "backends" / "nvidia" / "bin" / name
        if file.is_file() and file.resolve().is_relative_to(root.resolve()):
            yield Tool("ptxas", str(file), release_of(file), bundled=True)


def release_of(program: Path) -> tuple[int, int] | None:
    """The CUDA release of a compiler, from the text that its `--version` prints; the program itself doesn't run."""
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _RELEASE.search(data)
            return (int(match[1]), int(match[2])) if match else None
    except (OSError, ValueError):
        return None


def _header(file: Path) -> tuple[int, int] | None:
    try:
        match = re.search(r"^#define CUDA_VERSION (\d+)", file.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return (int(match[1]) // 1000, int(match[1]) % 1000 // 10) if match else None


def cache_folders(environment: Mapping[str, str]) -> list[Path]:
    """Where the JIT compilers of the engine keep what they compiled, with each one's own variable."""
    home = Path(environment.get("HOME") or "/nonexistent")
    user = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    defaults = {
        "SGLANG_CACHE_DIR": user / "sglang",
        "SGLANG_DG_CACHE_DIR": user / "deep_gemm",
        "TRITON_CACHE_DIR": home / ".triton" / "cache",
        "TORCHINDUCTOR_CACHE_DIR": Path("/tmp") / f"torchinductor_{environment.get('USER', 'root')}",
        "TORCH_EXTENSIONS_DIR": user / "torch_extensions",
        "TVM_FFI_CACHE_DIR": user / "tvm-ffi",
    }
    flashinfer = Path(environment.get("FLASHINFER_WORKSPACE_BASE") or home) / ".cache" / "flashinfer"
    return [flashinfer, *(Path(environment.get(name) or folder) for name, folder in defaults.items())]


def _cached(environment: Mapping[str, str]) -> Iterator[Cached]:
    looked = 0
    for top in cache_folders(environment):
        for folder, _, files in os.walk(top):
            for name in sorted(files):
                looked += 1
                if looked > _FILES:
                    return
                found = _cached_file(Path(folder, name))
                if found is not None:
                    yield found


def _cached_file(file: Path) -> Cached | None:
    """A file of a cache, if a rule may have something to say of it: compiled libraries, and metadata that is broken."""
    try:
        if LIBRARY.search(file.name):
            return Cached(str(file), elf.read(file).needed)
        if file.suffix == ".json" and not file.is_symlink() and file.stat().st_size < 1 << 20:
            json.loads(file.read_text())
    except elf.Damaged as error:
        return Cached(str(file), why=str(error))
    except OSError as error:
        return Cached(str(file), why=dist.reason(error))
    except (ValueError, RecursionError):
        return Cached(str(file), why="it is empty" if file.stat().st_size == 0 else "its JSON is cut short")
    return None


def _extra_sites(root: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Import roots beside the examined one: the system's for a venv that asks for it, the user's outside of a venv."""
    if root.name not in ("site-packages", "dist-packages"):
        return
    settings = next((place / "pyvenv.cfg" for place in root.parents[:3] if (place / "pyvenv.cfg").is_file()), None)
    open_venv = False
    if settings is not None:
        text = settings.read_text(errors="replace")
        open_venv = bool(re.search(r"^include-system-site-packages\s*=\s*true", text, re.MULTILINE | re.IGNORECASE))
        home = re.search(r"^home\s*=\s*(.+)$", text, re.MULTILINE)
        if open_venv and home:
            for site in sorted(Path(home[1].strip()).parent.glob(f"lib/{root.parent.name}/*-packages")):
                yield str(site)
    if (settings is None or open_venv) and not environment.get("PYTHONNOUSERSITE"):
        user = Path(environment.get("HOME") or "/nonexistent") / ".local" / "lib" / root.parent.name / "site-packages"
        if user != root and any((user / name).is_dir() for name in ("torch", "nvidia", "triton", "sgl_kernel")):
            yield str(user)
