"""C++ symbols in words: the qualified name by a small reader of mangled names, with parameters where c++filt is at hand."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable

#: Symbols that torch's libraries have to define: its namespaces, its C interfaces.
TORCH = re.compile(r"_Z(TI|TV|TS|TT|GV)?N?[KR]*(3c10|2at|5torch)|THP|aoti_torch_|torch_(?!tensorrt)")
#: Symbols of other packages' libraries: which file has to define them.
OTHERS = (
    (re.compile(r"nccl[A-Z]\w*$"), "libnccl.so.2"),
    (re.compile(r"nvshmemx?_\w+$"), "libnvshmem_host.so.3"),
    (re.compile(r"TVMFFI\w+$"), "libtvm_ffi.so"),
)
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in (TORCH, *(pattern for pattern, _ in OTHERS))))


def qualified(symbol: str) -> str:
    """The name that a mangled symbol begins with: c10::cuda::c10_cuda_check_implementation. Itself if it is not mangled."""
    match = re.match(r"_Z(?:TI|TV|TS|TT|GV)?(?:N[VKRO]*)?", symbol)
    if match is None:
        return symbol
    parts, position = [], match.end()
    while length := re.match(r"\d+", symbol[position:]):
        start = position + length.end()
        position = start + int(length[0])
        parts.append(symbol[start:position])
        while symbol.startswith("B5cxx11", position):
            position += len("B5cxx11")
    if re.match(r"[CD]\d", symbol[position:]) and parts:
        parts.append(("~" if symbol[position] == "D" else "") + parts[-1])
    return "::".join(parts) or symbol


def demangle(symbols: Iterable[str]) -> dict[str, str]:
    """Each symbol with its declaration, or with its qualified name where there is no c++filt."""
    wanted = list(symbols)
    program = shutil.which("c++filt")
    if program and wanted:
        try:
            done = subprocess.run([program], input="\n".join(wanted), capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return {symbol: qualified(symbol) for symbol in wanted}
        lines = done.stdout.splitlines()
        if done.returncode == 0 and len(lines) == len(wanted):
            return dict(zip(wanted, lines, strict=True))
    return {symbol: qualified(symbol) for symbol in wanted}


def siblings(symbols: Iterable[str], exported: Iterable[str]) -> dict[str, str]:
    """For each symbol the exported one of the same qualified name that is most like it; those without one are left out."""
    wanted = defaultdict(list)
    for symbol in symbols:
        wanted[qualified(symbol)].append(symbol)
    hints = {name.rsplit("::", 1)[-1] for name in wanted}
    near: dict[str, list[str]] = defaultdict(list)
    for symbol in exported:
        # Cheap first: most of a hundred thousand exports share no last name with what is missing.
        if any(hint in symbol for hint in hints):
            near[qualified(symbol)].append(symbol)
    return {
        symbol: max(sorted(near[name]), key=lambda other, symbol=symbol: _alike(symbol, other))
        for name, group in wanted.items()
        if name in near
        for symbol in group
    }


def _alike(one: str, other: str) -> int:
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same - abs(len(one) - len(other))


def old_string(symbol: str) -> bool:
    """Whether a symbol is of the C++ ABI before 2011's strings, as torch's were until 2.6."""
    return bool(re.search(r"Ss(?![a-z])", symbol)) and "cxx11" not in symbol


def asked_for(symbol: str) -> bool:
    """Whether any rule looks at a symbol of this name."""
    return bool(_ANY.match(symbol))
