"""Replace pieces of a module's source as it is imported: exactly as often as expected, or the import fails.

A replaced piece that moved, changed or was duplicated raises ImportError naming the module, its file, the reason for
the rewrite and how often the piece was found. So a new SGLang, or a patch that touches such a line, can't silently run
with half of what it needs. Files on disk are never written to.

    sys.meta_path.insert(0, Importer([Rewrite("some.module", old="cuda", new="cpu", reason="no GPU here")]))
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One piece of one module's source and what takes its place."""

    module: str
    old: str
    new: str
    reason: str
    #: How often `old` must be in the source: each occurrence is replaced.
    count: int = 1

    def apply(self, source: str, path: str) -> str:
        """`source` with the piece replaced. Raises ImportError unless it is there exactly `count` times."""
        found = source.count(self.old)
        if found != self.count:
            raise ImportError(
                f"cannot run {self.module} on a CPU: {path} has {found} times, expected {self.count}: "
                f"{self.old!r} (rewritten because {self.reason}); adapt overlay/cpu/cpu_engine/rewrites.py",
                name=self.module,
                path=path,
            )
        return source.replace(self.old, self.new)


class Importer(importlib.abc.MetaPathFinder):
    """Finds the modules that have rewrites, where they would be found anyway, and loads them rewritten."""

    def __init__(self, rewrites: Iterable[Rewrite]) -> None:
        self._rewrites: dict[str, list[Rewrite]] = {}
        for rewrite in rewrites:
            self._rewrites.setdefault(rewrite.module, []).append(rewrite)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        rewrites = self._rewrites.get(fullname)
        if rewrites is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, rewrites)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, rewrites: Sequence[Rewrite]) -> None:
        super().__init__(fullname, path)
        self._rewrites = rewrites

    def get_code(self, fullname: str) -> CodeType:
        # Not the inherited one: it would take (and write) the cached bytecode of the source as it is on disk.
        source = self.get_data(self.path).decode()
        for rewrite in self._rewrites:
            source = rewrite.apply(source, self.path)
        # Triton reads a kernel's source by line number, so it must see the lines that were compiled.
        # No modification time: the entry never counts as stale.
        linecache.cache[self.path] = (len(source), None, source.splitlines(keepends=True), self.path)
        return compile(source, self.path, "exec", dont_inherit=True)
