"""The patched tree: whole, keyed by the series, and without a way to write into the pristine one unseen."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from patches import tree
from patches.errors import PatchError
from tests.patches.world import PRISTINE, VERSION, World, fingerprint
from tools.cli import UserError

EDITS = {"sglang/short.py": b"one = 2\n", "sglang/new/mod.py": b"new = 1\n", "sglang/deep/er/mod.py": None}


def lay_out(world: World) -> tree.PatchedTree:
    from patches import series

    return tree.lay_out(series.load(VERSION, where=world.folder), lambda: world.pristine, world.root / "cache")


def contents(root: Path) -> dict[str, bytes]:
    return {path: (root / path).read_bytes() for path in tree.files(root)}


def test_it_holds_the_patched_package_and_is_taken_again(world: World) -> None:
    series = world.series(("one", EDITS))
    built = lay_out(world)
    assert contents(built.root) == {path: data for path, data in {**PRISTINE, **EDITS}.items() if data is not None}
    assert built.root.name == f"{VERSION}-{series.digest[:12]}" and built.digest == series.digest
    before = built.root.stat().st_ino
    assert lay_out(world).root.stat().st_ino == before
    assert [path.name for path in built.root.parent.iterdir()] == [built.root.name]


def test_an_empty_series_is_the_pristine_tree(world: World) -> None:
    world.series()
    assert contents(lay_out(world).root) == PRISTINE


def test_touched_files_share_nothing_and_the_others_are_read_only(world: World) -> None:
    world.series(("one", EDITS))
    root = lay_out(world).root
    for path in tree.files(root):
        shared = (world.pristine / path).exists() and (root / path).samefile(world.pristine / path)
        assert shared == (path not in EDITS), path
        assert not (root / path).stat().st_mode & 0o222, path


def test_a_file_system_without_hard_links_gets_copies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    world.series(("one", EDITS))
    monkeypatch.setattr(os, "link", refuse)
    root = lay_out(world).root
    assert contents(root) == {path: data for path, data in {**PRISTINE, **EDITS}.items() if data is not None}
    assert all(path.stat().st_nlink == 1 for path in root.rglob("*.py"))


def test_a_copy_is_writable_and_shares_nothing(world: World, tmp_path: Path) -> None:
    world.series(("one", EDITS))
    before = fingerprint(lay_out(world).root)
    copy = lay_out(world).copy_to(tmp_path / "copy")
    for path in tree.files(copy):
        assert (copy / path).stat().st_mode & 0o200
        (copy / path).write_bytes(b"mine\n")
    assert fingerprint(lay_out(world).root) == before


@pytest.mark.parametrize("path", ["sglang/long.py", "sglang/short.py"])
def test_a_file_that_was_written_to_is_named(world: World, path: str) -> None:
    """Also by root, whom read-only files do not stop."""
    world.series(("one", EDITS))
    root = lay_out(world).root
    (root / path).chmod(0o644)
    (root / path).write_bytes((root / path).read_bytes().replace(b"1", b"2"))
    with pytest.raises(UserError, match=rf"{path} in .* changed after it was laid out"):
        lay_out(world)


def test_bytecode_that_python_left_is_no_change(world: World) -> None:
    world.series(("one", EDITS))
    root = lay_out(world).root
    (root / "sglang/__pycache__").mkdir()
    (root / "sglang/__pycache__/short.cpython-311.pyc").write_bytes(b"x")
    lay_out(world)


def test_a_tree_that_is_not_the_pinned_one_leaves_nothing_behind(world: World) -> None:
    world.series(("one", EDITS))
    (world.pristine / "sglang/short.py").write_bytes(b"one = 1\ntwo = 3\n")
    with pytest.raises(PatchError, match=r"0001-one\.patch:\d+: sglang/short\.py does not have the Pre-Image"):
        lay_out(world)
    assert list((world.root / "cache").glob("*")) == []
