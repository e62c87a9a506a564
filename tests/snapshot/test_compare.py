"""Whatever is edited, deleted or added is named, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot.compare import compare, first_difference
from snapshot.manifest import Manifest
from tools.files import sha256

NAME = st.text("abcü. ", min_size=1, max_size=4).filter(lambda name: name.strip("."))
#: Folders end in "_" and files don't, so that no file lies where another path needs a folder.
FOLDERS = st.lists(NAME.map("{}_".format), max_size=2)
PATHS = st.builds(lambda folders, name: "/".join(["sglang", *folders, name]), FOLDERS, NAME)
FILES = st.dictionaries(PATHS, st.binary(max_size=30), min_size=1, max_size=8)


def lay_out(root: Path, files: dict[str, bytes]) -> Manifest:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return Manifest("1", "w", "0", {name: sha256(root / name) for name in files})


@settings(max_examples=100, deadline=None)
@given(files=FILES, added=FILES, choice=st.randoms(use_true_random=False))
def test_every_difference_is_named_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], added: dict[str, bytes], choice: object
) -> None:
    root = tmp_path_factory.mktemp("tree")
    pin = lay_out(root, files)
    fates = {name: choice.choice(["same", "changed", "missing"]) for name in files}
    for name, fate in fates.items():
        if fate == "changed":
            at = choice.randrange(len(files[name]) + 1)  # one byte more, or one byte other
            old = files[name]
            (root / name).write_bytes(old[:at] + bytes([(old[at] + 1) % 256 if at < len(old) else 0]) + old[at + 1 :])
        if fate == "missing":
            (root / name).unlink()
    foreign = {name: data for name, data in added.items() if name not in files}
    lay_out(root, foreign)

    found = compare(root, pin)
    for fate in ("same", "changed", "missing"):
        assert getattr(found, fate) == sorted(name for name in fates if fates[name] == fate)
    assert found.foreign == sorted(foreign)
    assert found.equal == (set(fates.values()) == {"same"} and not foreign)
    assert list(found.differences) == sorted(found.differences)


def test_bytecode_does_not_count(tmp_path: Path) -> None:
    pin = lay_out(tmp_path, {"sglang/a.py": b"1"})
    lay_out(tmp_path, {"sglang/__pycache__/a.cpython-311.pyc": b"", "sglang/__pycache__/x/notes": b"", "sglang/b.pyc": b""})
    assert compare(tmp_path, pin).equal


def test_a_tree_below_a_folder_named_like_bytecode_counts(tmp_path: Path) -> None:
    pin = lay_out(tmp_path / "__pycache__", {"sglang/a.py": b"1"})
    assert compare(tmp_path / "__pycache__", pin).same == ["sglang/a.py"]


def test_a_link_in_place_of_a_file_counts_as_changed(tmp_path: Path) -> None:
    pin = lay_out(tmp_path, {"sglang/a.py": b"1", "sglang/b.py": b"1"})
    (tmp_path / "sglang/b.py").unlink()
    (tmp_path / "sglang/b.py").symlink_to("a.py")
    (tmp_path / "sglang/folder").symlink_to("/etc")
    (tmp_path / "sglang/dangling").symlink_to("nowhere")
    found = compare(tmp_path, pin)
    assert (found.same, found.changed, found.foreign) == (["sglang/a.py"], ["sglang/b.py"], ["sglang/dangling", "sglang/folder"])


def test_an_empty_folder_is_no_package(tmp_path: Path) -> None:
    pin = lay_out(tmp_path / "made", {"sglang/a.py": b"1"})
    assert compare(tmp_path, pin).missing == ["sglang/a.py"]


@pytest.mark.parametrize(
    ("ours", "theirs", "line"),
    [(b"a\nb\n", b"a\nc\n", 2), (b"a\n", b"a\nb\n", 2), (b"a", b"a\n", 1), (b"a\r\n", b"a\n", 1), (b"", b"x", 1)],
)
def test_the_first_differing_line(ours: bytes, theirs: bytes, line: int) -> None:
    assert first_difference(ours, theirs) == line == first_difference(theirs, ours)
