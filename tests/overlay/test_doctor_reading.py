"""The doctor's reader: agrees with pyelftools, survives damage with a sentence, and never looks outside of the root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import overlay.site
from overlay.doctor import elf, fatbin, rules, tree
from overlay.doctor.finding import Severity
from tests.overlay.elfwriter import library
from tools.paths import REPO


def _package(root: Path, name: str = "alpha", files: tuple[str, ...] = (), record: str | None = None) -> None:
    info = root / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files) if record is None else record)


def _doctor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overlay", "doctor", "--no-host", *map(str, arguments)]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = library(
        tmp_path / "liba.so",
        needed=("libb.so", "libc.so.6"),
        soname="liba.so",
        rpath="$ORIGIN:$ORIGIN/../lib",
        undefined=("ncclSend",),
        weak=("maybe",),
        exported=("mine",),
        code=(("sass", 90), ("sass", 120), ("ptx", 90)),
    )
    assert elf.read(file) == elf.Elf(
        machine="x86-64",
        soname="liba.so",
        needed=("libb.so", "libc.so.6"),
        rpath=("$ORIGIN", "$ORIGIN/../lib"),
        runpath=(),
        undefined=frozenset({"ncclSend"}),
        exported=frozenset({"mine"}),
        code=(fatbin.Code("ptx", 90), fatbin.Code("sass", 90), fatbin.Code("sass", 120)),
    )


def test_real_libraries_read_as_pyelftools_reads_them() -> None:
    root = overlay.site.build().root
    for path in (root / "torch/lib/libshm.so", root / "torchvision/_C.so", *sorted(root.glob("numpy/**/*.so"))[:5]):
        found = elf.read(path)
        with path.open("rb") as stream:
            oracle = ELFFile(stream)
            dynamic, symbols = oracle.get_section_by_name(".dynamic"), oracle.get_section_by_name(".dynsym")
            assert found.needed == tuple(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))
            named = [one for one in symbols.iter_symbols() if one.name and one["st_info"]["bind"] != "STB_LOCAL"]
            missing = {one.name for one in named if one["st_shndx"] == "SHN_UNDEF" and one["st_info"]["bind"] != "STB_WEAK"}
            assert found.undefined == missing
            assert found.exported == {one.name for one in named if one["st_shndx"] != "SHN_UNDEF"}


def test_a_library_cut_anywhere_is_damage_or_reads(tmp_path: Path) -> None:
    whole = library(tmp_path / "a.so", needed=("b.so",), undefined=("c",), code=(("sass", 90),)).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "a.so").write_bytes(whole[:length])
        with pytest.raises(elf.Damaged):
            elf.read(tmp_path / "a.so")


def test_a_library_with_any_byte_changed_never_crashes(tmp_path: Path) -> None:
    whole = library(tmp_path / "a.so", needed=("b.so",), undefined=("c",), code=(("sass", 90),)).read_bytes()
    damaged = 0
    for position in range(len(whole)):
        (tmp_path / "a.so").write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            elf.read(tmp_path / "a.so")
        except elf.Damaged:
            damaged += 1
    assert damaged > 50


def test_damage_is_one_sentence_each_and_the_rest_is_examined(tmp_path: Path) -> None:
    root = tmp_path / "site"
    _package(root, files=("alpha/cut.so",))
    whole = library(root / "alpha/good.so").read_bytes()
    (root / "alpha/cut.so").write_bytes(whole[:300])
    with (root / "alpha/zeros.so").open("wb") as zeros:
        zeros.truncate(64 << 20)
    (root / "alpha/loop.so").symlink_to("loop.so")
    (root / "alpha/folder").symlink_to("../alpha")
    (root / "alpha/script.so").write_text("/* GNU ld script */ INPUT(libx.so.1)")
    os.mkfifo(root / "alpha/pipe.so")
    (root / "torch").mkdir()
    (root / "torch/version.py").write_text("__version__ = '2.1")
    facts = tree.read(root)
    assert [one.path for one in facts.libraries] == ["alpha/good.so"]
    why = {one.path: one.why for one in facts.damage}
    assert set(why) == {"alpha/cut.so", "alpha/zeros.so", "alpha/loop.so", "torch/version.py"}
    assert "truncated" in why["alpha/cut.so"] and "zeros" in why["alpha/zeros.so"] and "itself" in why["alpha/loop.so"]
    done = _doctor(root)
    assert done.returncode == 0, done.stderr  # nothing of it is of a package that the service loads at start
    assert done.stdout.count("R0 ") == 4 and not done.stderr


def test_a_library_without_read_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path)
    library(tmp_path / "secret.so").chmod(0)
    opened = os.open

    def refuse(path, *rest, **more):  # a test that runs as root reads everything
        if str(path).endswith("secret.so"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(elf.os, "open", refuse)
    (one,) = tree.read(tmp_path).damage
    assert (one.path, one.why) == ("secret.so", "it may not be read (no permission)")


def test_nothing_outside_of_the_root_is_looked_at(tmp_path: Path) -> None:
    outside = library(tmp_path / "outside/secret.so", needed=("libcudart.so.12",)).parent
    root = tmp_path / "site"
    _package(root, files=("../outside/secret.so", "/etc/passwd", "../../bin/tool", "link/secret.so", "alpha.py"))
    (root / "link").symlink_to(outside)
    (root / "out.so").symlink_to(outside / "secret.so")
    facts = tree.read(root, hashes=True)
    assert facts.libraries == () and facts.links == {}
    (one,) = facts.distributions
    assert one.outside == ("../outside/secret.so", "/etc/passwd"), "an installer's scripts are no finding"
    assert {entry.path: entry.found for entry in one.record or ()} == {"link/secret.so": "link", "alpha.py": "missing"}
    assert [damage.path for damage in facts.damage] == ["out.so"]


def test_an_empty_record_is_a_finding(tmp_path: Path) -> None:
    _package(tmp_path, record="")
    (one,) = rules.examine(tree.read(tmp_path))
    assert (one.rule, one.severity) == ("R5", Severity.WARNING) and "empty RECORD" in one.title


def test_another_byte_of_the_same_size_is_seen_with_hashes_only(tmp_path: Path) -> None:
    _package(tmp_path, record="alpha.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,3\n")
    (tmp_path / "alpha.py").write_text("a=1")
    assert rules.examine(tree.read(tmp_path)) == ()
    (one,) = rules.examine(tree.read(tmp_path, hashes=True))
    assert one.rule == "R5" and one.evidence[0].what == "another sha256"


def test_a_broken_wheel_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "alpha-1.0-py3-none-any.whl").write_bytes(b"PK\3\4 no more")
    done = _doctor(tmp_path, "--json")
    (one,) = json.loads(done.stdout)["findings"]
    assert one["rule"] == "R0" and "not a whole wheel" in one["title"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("hello\n")])
def test_what_is_no_environment_is_one_sentence(tmp_path: Path, make) -> None:
    make(tmp_path / "x")
    done = _doctor(tmp_path / "x")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_no_alarm_on_the_cpu_overlay() -> None:
    found = rules.examine(tree.read(overlay.site.build().root))
    assert [one.title for one in found if one.severity is not Severity.NOTE] == []


def test_no_alarm_on_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    done = _doctor(tmp_path / "venv", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["findings"] == []


def test_the_reader_imports_neither_torch_nor_anything_but_the_standard_library(tmp_path: Path) -> None:
    _package(tmp_path)
    for name in ("torch", "alpha"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported')")
    program = "import sys; from pathlib import Path; from overlay.doctor import host, tree, wheels; tree.read(Path(sys.argv[1]))"
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPO)]), "PATH": os.environ["PATH"]}
    base = Path(sys._base_executable)
    subprocess.run([base, "-S", "-c", program, tmp_path], check=True, env=environment, cwd=tmp_path)


def test_a_stripped_library_that_is_cut_is_damage(tmp_path: Path) -> None:
    file = library(tmp_path / "a.so", needed=("b.so",), code=(("sass", 90),))
    data = bytearray(file.read_bytes())
    data[40:48], data[60:64] = bytes(8), bytes(4)  # no section headers
    file.write_bytes(data)
    assert elf.read(file).needed == ("b.so",)
    file.write_bytes(data[:-1])
    with pytest.raises(elf.Damaged, match="truncated: "):
        elf.read(file)
