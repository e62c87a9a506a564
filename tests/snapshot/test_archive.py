"""An archive is unpacked as it is, or refused with the entry's name and nothing left behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from snapshot import archive
from tools.cli import UserError

EVIL = b"evil"


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.size = len(EVIL) if kind == tarfile.REGTYPE else 0
    return info


def tar(*entries: tarfile.TarInfo) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for info in entries:
            made.addfile(info, io.BytesIO(EVIL))
    buffer.seek(0)
    return buffer


def zipped(file: Path, *names: str, mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(file, "w") as made:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            made.writestr(info, EVIL)
    return file


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


HOSTILE = {
    "absolute": ([entry("/etc/evil")], "/etc/evil", "absolute path"),
    "dots": ([entry("sglang/../../evil")], "sglang/../../evil", "'..'"),
    "dots that stay inside": ([entry("sglang/a/../b")], "sglang/a/../b", "'..'"),
    "directory with dots": ([entry("../evil", tarfile.DIRTYPE)], "../evil", "'..'"),
    "symlink out": ([entry("sglang/out", tarfile.SYMTYPE, "/etc")], "sglang/out", "link to '/etc'"),
    "symlink inside": ([entry("sglang/a"), entry("sglang/b", tarfile.SYMTYPE, "a")], "sglang/b", "link to 'a'"),
    "file through a symlink": (
        [entry("sglang/d", tarfile.SYMTYPE, "../.."), entry("sglang/d/evil")],
        "sglang/d",
        "link to '../..'",
    ),
    "hard link out": ([entry("sglang/out", tarfile.LNKTYPE, "/etc/passwd")], "sglang/out", "link to '/etc/passwd'"),
    "device": ([entry("sglang/null", tarfile.CHRTYPE)], "sglang/null", "neither a file nor"),
    "pipe": ([entry("sglang/pipe", tarfile.FIFOTYPE)], "sglang/pipe", "neither a file nor"),
    "same name twice": ([entry("sglang/a"), entry("sglang/a")], "sglang/a", "twice"),
    "same name spelled otherwise": ([entry("sglang/a"), entry("./sglang//a")], "./sglang//a", "twice"),
    "file below a file": ([entry("sglang/a"), entry("sglang/a/b")], "sglang/a/b", "'sglang/a' is a file"),
    "file over a directory": ([entry("sglang/a/b"), entry("sglang/a")], "sglang/a", "twice"),
    "backslash": ([entry("sglang\\..\\evil")], "sglang\\..\\evil", "no file name"),
    "no name": ([entry(".")], ".", "twice"),
}


@pytest.mark.parametrize(("entries", "name", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tar_is_refused_by_name_and_leaves_nothing(
    entries: list[tarfile.TarInfo], name: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        archive.unpack_tar(tar(entry("sglang/good"), *entries), tmp_path / "in" / "tree")
    assert repr(name) in str(caught.value) and why in str(caught.value)
    assert everything(tmp_path) == {"in"}


@pytest.mark.parametrize(
    ("names", "mode"),
    [
        (["/etc/evil"], stat.S_IFREG),
        (["sglang/../../evil"], stat.S_IFREG),
        (["sglang/a", "sglang/a"], stat.S_IFREG),
        (["sglang/link"], stat.S_IFLNK),
        (["sglang/null"], stat.S_IFCHR),
    ],
    ids=["absolute", "dots", "twice", "symlink", "device"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_zip_is_refused_by_name_and_leaves_nothing(names: list[str], mode: int, tmp_path: Path) -> None:
    wheel = zipped(tmp_path / "x.whl", *names, mode=mode | 0o644)
    with pytest.raises(UserError, match="refused") as caught:
        archive.unpack_zip(wheel, tmp_path / "in" / "tree", only="sglang")
    assert repr(names[-1]) in str(caught.value)
    assert everything(tmp_path) == {"x.whl", "in"}


@pytest.mark.parametrize("cut", [0, 100, 512, 514, 1024, 1100, 1538, 2048])
def test_an_archive_cut_off_anywhere_is_refused(cut: int, tmp_path: Path) -> None:
    data = tar(entry("sglang/a"), entry("sglang/b")).getvalue()
    with pytest.raises(UserError, match="damaged"):
        archive.unpack_tar(io.BytesIO(data[:cut]), tmp_path / "tree")
    assert everything(tmp_path) == set()


@pytest.mark.parametrize("cut", [0, 5, 40, -30, -1])
def test_a_compressed_archive_is_taken_whole_or_not_at_all(cut: int, tmp_path: Path) -> None:
    data = gzip.compress(tar(entry("sglang/a"), entry("sglang/b")).getvalue())
    evil = hashlib.sha256(EVIL).hexdigest()
    assert archive.unpack_tar(io.BytesIO(data), tmp_path / "good") == {"sglang/a": evil, "sglang/b": evil}
    if cut != -1:  # a stream that lacks the end of gzip's own trailer has every byte of the archive
        with pytest.raises(UserError, match="damaged"):
            archive.unpack_tar(io.BytesIO(data[:cut]), tmp_path / "tree")
        assert not (tmp_path / "tree").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"<html>proxy login</html>" * 100)
    with pytest.raises(UserError, match="damaged"):
        archive.unpack_zip(tmp_path / "x.whl", tmp_path / "tree", only="sglang")
    with pytest.raises(UserError, match="damaged"), (tmp_path / "x.whl").open("rb") as stream:
        archive.unpack_tar(stream, tmp_path / "tree")


def test_an_endless_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LIMIT", len(EVIL) * 3)
    archive.unpack_tar(tar(*(entry(f"{n}") for n in range(3))), tmp_path / "three")
    with pytest.raises(UserError, match=r"entry '3' makes it larger"):
        archive.unpack_tar(tar(*(entry(f"{n}") for n in range(4))), tmp_path / "four")


def test_what_is_wanted_of_a_zip_is_unpacked_with_its_modes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as made:
        for name, mode in (("sglang/tool", 0o755), ("sglang/a.py", 0o664), ("tools/other.py", 0o644)):
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | mode) << 16
            made.writestr(info, name)
    os.umask(mask := os.umask(0))
    archive.unpack_zip(tmp_path / "x.whl", tmp_path / "tree", only="sglang")
    assert everything(tmp_path / "tree") == {"sglang", "sglang/tool", "sglang/a.py"}
    assert stat.S_IMODE((tmp_path / "tree/sglang/tool").stat().st_mode) == 0o755 & ~mask
    assert stat.S_IMODE((tmp_path / "tree/sglang/a.py").stat().st_mode) == 0o644 & ~mask


# Names that are put together from what path tricks are made of.
PIECES = st.sampled_from(["a", "b", "..", ".", "", " ", "...", "~", "/", "//", "\\", "a\n", "é", "C:", "sglang"])
NAMES = st.lists(PIECES, min_size=1, max_size=6).map("/".join).filter(lambda name: name.strip("/."))
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
LINKS = st.sampled_from(["..", "/", "../../outside", "a", "sglang"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.builds(entry, NAMES, KINDS, LINKS), max_size=5))
@example([entry("a", tarfile.SYMTYPE, ".."), entry("a/outside")])
def test_no_entry_ever_leaves_the_tree(tmp_path_factory: pytest.TempPathFactory, entries: list[tarfile.TarInfo]) -> None:
    outside = tmp_path_factory.mktemp("outside")
    tree = outside / "in" / "tree"
    try:
        archive.unpack_tar(tar(*entries), tree)
    except UserError:
        assert everything(outside) == {"in"}
        return
    assert {path for path in everything(outside) if not path.startswith("in/tree")} == {"in"}
    assert not any(path.is_symlink() for path in tree.rglob("*"))
    files = {str(PurePosixPath(info.name)) for info in entries if info.isreg()}
    assert {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()} == files
