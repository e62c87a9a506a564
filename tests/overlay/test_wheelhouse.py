"""The wheelhouse: by hash, resumed where it stopped, whole or not there; sites in which every RECORD holds. Real HTTP and uv."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from overlay import indexes, lock, profiles, unpack, wheelhouse
from overlay.doctor import rules, tree
from tests.overlay.wheels import Index, serving, wheel
from tools.cli import UserError
from tools.files import sha256

PYTHON = "{}.{}".format(*sys.version_info)
#: Bytes that do not shrink when they are packed.
NOISE = b"".join(hashlib.sha256(bytes([number % 256, number // 256])).digest() for number in range(20_000))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index with two packages, as pip is set up to reach it, and a profile `small` that needs them."""
    alpha = {"alpha.py": b"A = 1\n", "alpha-1.0.data/scripts/alpha": b"#!python\n"}
    wheel(tmp_path / "index", "alpha", alpha, requires=("beta",))
    wheel(tmp_path / "index", "beta", {"beta/noise.bin": NOISE, "beta/__init__.py": b""})
    made = tmp_path / "profiles"
    made.mkdir()
    (made / "small.toml").write_text(
        f'name = "small"\npython = "{PYTHON}"\nplatform = "any"\npip = "an index"\nrequirements = ["alpha==1.0"]\n'
    )
    monkeypatch.setattr(profiles, "PROFILES", made)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with serving(tmp_path / "index") as found:
        monkeypatch.setenv("PIP_INDEX_URL", f"{found.address}/simple")
        pins = [f"{file.name.split('-')[0]}==1.0 --hash=sha256:{sha256(file)}\n" for file in sorted(found.folder.glob("*.whl"))]
        (made / "small.lock").write_text("".join(pins))
        yield found


def _build(tmp_path: Path) -> wheelhouse.House:
    return wheelhouse.build("small", store=tmp_path / "store")


def _beta(tmp_path: Path) -> Path:
    return next((tmp_path / "index").glob("beta-*"))


def test_the_lock_is_the_closure_by_hash_and_says_nothing_of_the_index(index: Index) -> None:
    lock.renew(profiles.load("small"))
    text = profiles.load("small").lock.read_text()
    assert [pin.name for pin in lock.read(profiles.load("small").lock)] == ["alpha", "beta"]
    assert "127.0.0.1" not in text and "://" not in text


def test_a_site_is_what_the_wheels_are_and_every_record_holds(index: Index, tmp_path: Path) -> None:
    built = _build(tmp_path)
    assert (built.root / "beta/noise.bin").read_bytes() == NOISE
    assert [path.parent.name for path in built.wheels] == [pin.sha256 for pin in lock.read(profiles.load("small").lock)]
    assert not (built.root / "bin").exists() and "scripts" not in (built.root / "alpha-1.0.dist-info/RECORD").read_text()
    assert rules.examine(tree.read(built.root, hashes=True)) == ()


def test_the_second_time_nothing_is_asked_for(index: Index, tmp_path: Path) -> None:
    first = _build(tmp_path)
    asked = len(index.ranges)
    inode = first.root.stat().st_ino
    assert _build(tmp_path) == first and len(index.ranges) == asked and first.root.stat().st_ino == inode


def test_a_connection_that_ends_is_taken_up_where_it_ended(index: Index, tmp_path: Path) -> None:
    index.cut, index.cuts = 100_000, 3
    assert (_build(tmp_path).root / "beta/noise.bin").read_bytes() == NOISE
    starts = [int(re.sub(r"\D", "", asked)) for asked in index.ranges if asked]
    assert starts == sorted(starts) and starts[0] > 0 and len(starts) >= 2


def test_what_another_run_left_is_taken_up(index: Index, tmp_path: Path) -> None:
    whole = _beta(tmp_path).read_bytes()
    part = tmp_path / "store/wheels" / hashlib.sha256(whole).hexdigest() / f"{_beta(tmp_path).name}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(whole[:200_000])
    _build(tmp_path)
    assert "bytes=200000-" in index.ranges and not part.exists()


@pytest.mark.parametrize("left", [b"x" * 5000, b"x" * 10_000_000])
def test_what_is_no_beginning_of_the_file_is_not_kept(index: Index, tmp_path: Path, left: bytes) -> None:
    name = _beta(tmp_path).name
    part = tmp_path / "store/wheels" / hashlib.sha256(_beta(tmp_path).read_bytes()).hexdigest() / f"{name}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    if len(left) == 5000:
        with pytest.raises(UserError, match=r"beta-1\.0-py3-none-any\.whl came with sha256 .* not the locked .*; it is not kept"):
            _build(tmp_path)
    assert (_build(tmp_path).root / "beta/noise.bin").read_bytes() == NOISE


def test_a_server_that_can_not_continue_starts_anew(index: Index, tmp_path: Path) -> None:
    index.cut, index.cuts, index.refuse_ranges = 100_000, 1, True
    assert (_build(tmp_path).root / "beta/noise.bin").read_bytes() == NOISE


def test_another_file_of_the_same_version_is_refused_by_name(index: Index, tmp_path: Path) -> None:
    wheel(tmp_path / "index", "beta", {"beta/__init__.py": b"import os\n"})
    with pytest.raises(UserError, match=r"another file for beta==1\.0 than small\.lock pins.*make lock PROFILE=small"):
        _build(tmp_path)
    assert not list((tmp_path / "store").glob("sites/small*"))


def test_a_wheel_that_has_gone_from_the_index_is_named(index: Index, tmp_path: Path) -> None:
    _beta(tmp_path).unlink()
    with pytest.raises(UserError, match=r"beta"):
        _build(tmp_path)


def test_a_wheel_that_rotted_on_the_disk_is_fetched_anew(index: Index, tmp_path: Path) -> None:
    first = _build(tmp_path)
    rotten = next(path for path in first.wheels if path.name.startswith("beta"))
    rotten.write_bytes(rotten.read_bytes()[:-1] + b"x")
    assert wheelhouse.fetch(profiles.load("small"), lock.read(profiles.load("small").lock), store=tmp_path / "store")
    assert rotten.read_bytes() == _beta(tmp_path).read_bytes()


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(index: Index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(wheelhouse, "_RESERVE", 1 << 60)
    with pytest.raises(UserError, match="make room, or set XDG_CACHE_HOME"):
        _build(tmp_path)
    assert index.ranges == []


def test_a_renewed_lock_says_what_changed(index: Index, tmp_path: Path) -> None:
    profile = profiles.load("small")
    before = lock.read(profile.lock)
    wheel(tmp_path / "index", "beta", {"beta/__init__.py": b""}, version="1.1", requires=("gamma",))
    wheel(tmp_path / "index", "gamma", {"gamma.py": b""})
    assert lock.changes(before, lock.renew(profile)) == ("  beta 1.0 -> 1.1", "+ gamma 1.0")
    assert lock.changes(lock.read(profile.lock), before) == ("  beta 1.1 -> 1.0", "- gamma 1.0")


def test_two_packages_with_one_path_and_different_bytes_are_named(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, name, {"shared/x.py": name.encode(), "shared/same.py": b""}) for name in ("alpha", "beta")]
    with pytest.raises(UserError, match=r"shared/x\.py is owned by more than one package with different bytes: alpha and beta"):
        unpack.all_of(wheels, tmp_path / "site")
    assert not (tmp_path / "site").exists()
    unpack.all_of(wheels, tmp_path / "other", leave_out=["shared/x.py"])
    assert rules.examine(tree.read(tmp_path / "other", hashes=True)) == ()


@pytest.mark.parametrize("path", ["../evil.py", "/evil.py", "a/../../evil.py"])
def test_a_wheel_writes_nothing_outside_of_the_root(tmp_path: Path, path: str) -> None:
    with pytest.raises(UserError, match="outside of the site root"):
        unpack.all_of([wheel(tmp_path, "alpha", {path: b"x"})], tmp_path / "site")
    assert not list(tmp_path.rglob("evil.py"))


def test_a_byte_that_record_does_not_have_is_found(tmp_path: Path) -> None:
    file = wheel(tmp_path, "alpha", {"alpha.py": b"A = 1\n"})
    other = wheel(tmp_path / "other", "alpha", {"alpha.py": b"A = 2\n"})
    with zipfile.ZipFile(file) as good, zipfile.ZipFile(other) as bad, zipfile.ZipFile(tmp_path / "x.whl", "w") as mixed:
        for name in good.namelist():
            mixed.writestr(name, (bad if name == "alpha.py" else good).read(name))
    with pytest.raises(UserError, match=r"x\.whl is damaged at alpha\.py"):
        unpack.all_of([tmp_path / "x.whl"], tmp_path / "site")


def test_programs_inside_of_packages_stay_programs(tmp_path: Path) -> None:
    file = wheel(tmp_path, "alpha", {"alpha/ptxas": b"x"})
    with zipfile.ZipFile(file) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(file, "w") as archive:
        for info, data in members:
            info.external_attr = (0o755 if info.filename.endswith("ptxas") else 0o644) << 16
            archive.writestr(info, data)
    unpack.all_of([file], tmp_path / "site")
    assert stat.S_IMODE((tmp_path / "site/alpha/ptxas").stat().st_mode) == 0o755


def test_pips_settings_reach_uv_and_never_as_arguments() -> None:
    found = indexes.parse(
        "global.index-url='https://me:se%40cret@one/simple'\nglobal.extra-index-url='https://two/simple\\nhttps://three/simple'\n"
        ":env:.find-links='/wheels'\n:env:.cert='/ca.pem'\ninstall.no-index='false'\n"
    )
    environment = found.for_uv()
    assert environment["UV_DEFAULT_INDEX"] == "https://me:se%40cret@one/simple"
    assert environment["UV_INDEX"].split() == ["https://me:se%40cret@one/simple", "https://two/simple", "https://three/simple"]
    assert (environment["UV_FIND_LINKS"], environment["SSL_CERT_FILE"]) == ("/wheels", "/ca.pem")
    assert found.passwords() == {"one": ("me", "se@cret")} and not found.offline


@pytest.mark.parametrize("scope", ["code", "abi", "full"])
def test_a_scope_says_what_is_brought(scope: str) -> None:
    cu130 = profiles.load("cu130", "3.12")
    names = {pin.name for pin in lock.read(cu130.lock)}
    brought = set(cu130.select(names, scope))
    assert "sglang" in names and "sglang" not in brought
    assert ("torch" in brought, "nvidia-cublas" in brought, "fastapi" in brought) == {
        "code": (False, False, False),
        "abi": (True, True, False),
        "full": (True, True, True),
    }[scope]


def test_a_python_without_a_lock_is_refused() -> None:
    with pytest.raises(UserError, match=r"cu130 is not locked for Python 3\.9; it is for 3\.11, 3\.10, 3\.12"):
        profiles.load("cu130", "3.9")
