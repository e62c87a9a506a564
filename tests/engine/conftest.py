"""Trees for engine tests: the pinned one, the patched one, and copies of the patched one with a piece broken on purpose."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import patches.tree
import snapshot.tree
from tools.paths import CACHE


@pytest.fixture(scope="session")
def pristine_tree() -> Path:
    """Import root of SGLang as pinned."""
    return snapshot.tree.pristine()


@pytest.fixture(scope="session")
def patched_tree() -> Path:
    """Import root of SGLang with the whole series."""
    return patches.tree.build().root


@pytest.fixture(scope="session")
def seeded_tree(mutated_tree: Callable[..., Path], patched_tree: Path) -> Callable[..., Path]:
    """Makes trees in which seeds count on a CPU; `seeded_tree()`, or `seeded_tree(base)` of another than the patched one.

    Seeds need deterministic inference, whose kernels need an accelerator: these trees are without them, as fp32 on one
    thread is deterministic enough. `SEEDED` and `SEEDED_ENV` of `checking` belong to it.
    """

    def make(base: Path = patched_tree) -> Path:
        return mutated_tree(
            "sglang/srt/model_executor/model_runner.py",
            "            enable_batch_invariant_mode()\n",
            "            del enable_batch_invariant_mode\n",
            base=base,
        )

    return make


@pytest.fixture(scope="session")
def mutated_tree(patched_tree: Path) -> Iterator[Callable[..., Path]]:
    """Makes broken trees: `mutated_tree("sglang/srt/speculative/dflash_info.py", "old", "new", count=1)`.

    The result is the patched tree with `old` replaced in one file. Raises ValueError unless `old` is there exactly
    `count` times. The same breakage gives the same tree. With `base` that tree is changed in place of the patched one.
    All other files are hard links: never write to them.
    """
    CACHE.mkdir(exist_ok=True)
    # Beside the trees, since a hard link can't cross file systems.
    with tempfile.TemporaryDirectory(prefix="mutated-", dir=CACHE) as folder:
        made: dict[tuple, Path] = {}

        def mutate(file: str, old: str, new: str, count: int = 1, base: Path = patched_tree) -> Path:
            key = (file, old, new, count, base)
            if key not in made:
                source = (base / file).read_text()
                if source.count(old) != count:
                    raise ValueError(f"{file} has {source.count(old)} times, expected {count}: {old!r}")
                root = Path(folder) / str(len(made))
                shutil.copytree(base, root, copy_function=os.link)
                (root / file).unlink()
                (root / file).write_text(source.replace(old, new))
                made[key] = root
            return made[key]

        yield mutate
