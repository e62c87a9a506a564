"""Environments as hosts have them, made of fake libraries: CT129 is built for CUDA 13.0, CT200 for CUDA 12.8."""

from __future__ import annotations

import hashlib
from pathlib import Path

from overlay.doctor import dist
from tests.overlay.elfwriter import library
from tests.overlay.wheels import record_hash, wheel

NEW = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
OLD = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"


def package(root: Path, name: str, version: str, *files: Path, requires: tuple[str, ...] = ()) -> None:
    """Write a package's metadata, with a RECORD of files that are there."""
    info = root / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    rows = ""
    for file in (info / "METADATA", *files):
        data = file.read_bytes()
        rows += f"{file.relative_to(root).as_posix()},sha256={record_hash(data)},{len(data)}\n"
    (info / "RECORD").write_text(f"{rows}{info.name}/RECORD,,\n")


def tree(root: Path, cuda: int) -> Path:
    """An SGLang environment for CUDA 13 or 12, as pip leaves it. Returns the root."""
    thirteen = cuda == 13
    label = "cu130" if thirteen else "cu128"
    runtime = "nvidia/cu13/lib/libcudart.so.13" if thirteen else "nvidia/cuda_runtime/lib/libcudart.so.12"
    suffix = "" if thirteen else "-cu12"
    nccl = library(root / "nvidia/nccl/lib/libnccl.so.2", exported=("ncclSend",))
    cudart = library(root / runtime, soname=Path(runtime).name)
    core = library(
        root / "torch/lib/libc10_cuda.so",
        needed=(Path(runtime).name, "libnccl.so.2"),
        runpath=f"$ORIGIN/../../{Path(runtime).parent}:$ORIGIN/../../nvidia/nccl/lib",
        undefined=("ncclSend",),
        exported=(NEW,),
    )
    texts = {
        "torch/version.py": f"__version__ = '2.11.0+{label}'\ncuda = '{'13.0' if thirteen else '12.8'}'\n",
        "torchaudio/version.py": f"__version__ = '2.11.0+{label}'\n",
        "fastapi/__init__.py": "",
    }
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    kernel = library(root / "sgl_kernel/common_ops.abi3.so", needed=("libcudart.so.13", "libc10_cuda.so"), undefined=(NEW,))
    bindings = "cuda-bindings<14,>=13.0.3" if thirteen else "cuda-bindings<13,>=12.9.4"
    torch_needs = (f"nvidia-nccl-cu{cuda}==2.28.9", f"nvidia-cuda-runtime{suffix}", bindings)
    version = "2.11.0" if thirteen else "2.11.0+cu128"
    package(root, "torch", version, core, root / "torch/version.py", requires=torch_needs)
    package(root, "torchaudio", "2.11.0", root / "torchaudio/version.py")
    package(root, f"nvidia-nccl-cu{cuda}", "2.28.9", nccl)
    package(root, f"nvidia-cuda-runtime{suffix}", "13.0.96" if thirteen else "12.8.90", cudart)
    package(root, "cuda-bindings", "13.4.4" if thirteen else "12.9.4")
    package(root, "cuda-python", "13.4.4" if thirteen else "12.9.4")
    package(root, "sglang-kernel", "0.4.2", kernel)
    package(root, "fastapi", "0.165.0" if thirteen else "0.162.5", root / "fastapi/__init__.py")
    return root


def wheels(folder: Path, cuda: int) -> Path:
    """The same environment as a folder of wheels."""
    root = tree(folder / "unpacked", cuda)
    for info in root.glob("*.dist-info"):
        name, version, requires = dist.metadata((info / "METADATA").read_text())
        listed = [path for path, _, _ in dist.rows((info / "RECORD").read_text()) if not path.startswith(info.name)]
        wheel(folder, name, {path: (root / path).read_bytes() for path in listed}, version, requires)
    return folder


def digest(root: Path) -> str:
    """A hash of everything below a folder: names, kinds, modes, sizes, times of change, bytes."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        at = path.lstat()
        found.update(f"{path.relative_to(root)} {at.st_mode} {at.st_size} {at.st_mtime_ns}".encode())
        if path.is_file() and not path.is_symlink():
            found.update(path.read_bytes())
    return found.hexdigest()
