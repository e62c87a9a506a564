"""Rewrites: what is listed is there, what is not there stops the import and says where and why."""

from __future__ import annotations

import importlib
import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import overlay.site
import patches.tree
import snapshot.tree
from overlay.cpu.cpu_engine.rewrites import rewrites
from overlay.cpu.cpu_engine.rewriting import Importer, Rewrite

Use = Callable[[str, str, Rewrite], object]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Writes a module, puts an importer with one rewrite in front, and imports the module."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def use(name: str, source: str, rewrite: Rewrite) -> object:
        (tmp_path / f"{name}.py").write_text(source)
        names.append(name)
        monkeypatch.setattr(sys, "meta_path", [Importer([rewrite]), *sys.meta_path])
        return importlib.import_module(name)

    yield use
    for name in names:
        sys.modules.pop(name, None)


def test_the_import_sees_the_new_piece_and_the_disk_keeps_the_old(use: Use, tmp_path: Path) -> None:
    rewrite = Rewrite(module="rewritten_a", old='"cuda"', new='"cpu"', reason="there is no GPU", count=2)
    source = 'A = "cuda"\nB = "cuda"\ndef f():\n    return A, "cuda!"\n'
    module = use("rewritten_a", source, rewrite)
    assert (module.A, module.B, module.f()) == ("cpu", "cpu", ("cpu", "cuda!"))
    assert (tmp_path / "rewritten_a.py").read_text() == source
    assert not list(tmp_path.rglob("rewritten_a*.pyc")), "bytecode of a rewritten module would be taken for the file's"


def test_source_by_line_number_is_the_rewritten_one(use: Use) -> None:
    rewrite = Rewrite(module="rewritten_b", old="A = 1\n", new="A = 1\nB = 2\nC = 3\n", reason="more lines")
    module = use("rewritten_b", "A = 1\ndef f():\n    return A\n", rewrite)
    assert inspect.getsource(module.f) == "def f():\n    return A\n"


@pytest.mark.parametrize(("source", "found"), [("x = 'rocm'\n", 0), ("x = cuda\ny = cuda\n", 2)])
def test_another_count_stops_the_import_with_file_reason_and_count(use: Use, tmp_path: Path, source: str, found: int) -> None:
    rewrite = Rewrite(module="rewritten_c", old="cuda", new="cpu", reason="there is no GPU here")
    with pytest.raises(ImportError) as caught:
        use("rewritten_c", source, rewrite)
    message = str(caught.value)
    assert str(tmp_path / "rewritten_c.py") in message
    assert "rewritten_c on a CPU" in message
    assert f"has {found} times, expected 1" in message
    assert "there is no GPU here" in message


def test_one_changed_line_of_sglang_is_named(tmp_path: Path) -> None:
    """The real list against a real file in which one listed piece was edited."""
    rewrite = next(one for one in rewrites(reference=True) if one.module.endswith("mem_cache.memory_pool"))
    file = "sglang/srt/mem_cache/memory_pool.py"
    edited = tmp_path / "memory_pool.py"
    shutil.copyfile(snapshot.tree.pristine() / file, edited)
    source = edited.read_text()
    assert rewrite.apply(source, str(edited)) != source
    with pytest.raises(ImportError, match=r"memory_pool\.py has 1 times, expected 2"):
        rewrite.apply(source.replace('device="cuda",', 'device="cuda:0",', 1), str(edited))


@pytest.mark.parametrize("tree", ["pinned", "patched"])
@pytest.mark.parametrize("rewrite", rewrites(reference=True), ids=lambda one: f"{one.module}:{one.old.split()[0]}")
def test_every_listed_piece_is_there(rewrite: Rewrite, tree: str) -> None:
    roots = {"pinned": snapshot.tree.pristine, "patched": lambda: patches.tree.build().root}
    site = overlay.site.build().root
    root = roots[tree]() if rewrite.module.startswith("sglang.") else site
    path = root / (rewrite.module.replace(".", "/") + ".py")
    assert rewrite.new in rewrite.apply(path.read_text(), str(path))
