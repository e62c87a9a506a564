"""Sites are whole or not there: built once, reused, by one process at a time, never left half done. Real pip, small wheels."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import overlay.site
from overlay import profiles
from tools.cli import UserError

PYTHON = "{}.{}".format(*sys.version_info)
PACKAGES = ("alpha", "beta", "gamma")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile `small` with three packages, pip that finds them in a folder only, and an empty store."""
    wheels, made = tmp_path / "wheels", tmp_path / "profiles"
    wheels.mkdir()
    made.mkdir()
    (made / "small.toml").write_text(
        f'name = "small"\npython = "{PYTHON}"\nplatform = "any"\npip = "an index"\nreplaces = []\nrequirements = []\n'
    )
    (made / "small.lock").write_text("".join(_wheel(wheels, name) for name in PACKAGES))
    monkeypatch.setattr(profiles, "PROFILES", made)
    monkeypatch.setattr(overlay.site, "STORE", tmp_path / "store")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path


def _wheel(folder: Path, name: str) -> str:
    """Make a wheel with one module; returns its line of a lock."""
    file = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(f"{name}.py", f"NAME = {name!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def _left(world: Path) -> list[str]:
    """What lies in the store, but for the files that processes lock."""
    return sorted(path.name for path in (world / "store").glob("sites/*") if not path.name.endswith(".lock"))


def _imports(site: overlay.site.Site) -> str:
    program = f"import {', '.join(PACKAGES)}; print(alpha.NAME + beta.NAME + gamma.NAME)"
    return subprocess.check_output([site.python, "-c", program], env={"PYTHONPATH": str(site.root)}, text=True).strip()


def test_a_site_imports_what_is_locked_with_a_python_that_has_nothing_of_its_own(world: Path) -> None:
    site = overlay.site.build("small")
    assert _imports(site) == "alphabetagamma"
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.check_output([site.python, "-c", "import pip"], stderr=subprocess.DEVNULL)
    assert list(site.root.glob("__pycache__/alpha.*.pyc")), "compiled once, since hosts never write into a site"


def test_the_second_build_finds_the_first(world: Path) -> None:
    first = overlay.site.build("small")
    inode = first.root.stat().st_ino
    (world / "wheels").rename(world / "wheels-gone")  # a second installation would fail
    assert overlay.site.build("small") == first
    assert first.root.stat().st_ino == inode


def test_another_lock_is_another_site(world: Path) -> None:
    first = overlay.site.build("small")
    lock = profiles.PROFILES / "small.lock"
    lock.write_text("".join(lock.read_text().splitlines(keepends=True)[:2]))
    second = overlay.site.build("small")
    assert second.root != first.root
    assert (first.root / "gamma.py").exists()
    assert not (second.root / "gamma.py").exists()


def test_two_at_once_make_one(world: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        sites = list(pool.map(overlay.site.build, ["small", "small"]))
    assert sites[0] == sites[1]
    assert _imports(sites[0]) == "alphabetagamma"
    assert _left(world) == [sites[0].root.parent.name]


def test_a_wheel_with_another_hash_leaves_nothing(world: Path) -> None:
    _wheel(world / "wheels", "gamma")  # the archive's times differ, or:
    with zipfile.ZipFile(world / "wheels" / "gamma-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("evil.py", "")
    with pytest.raises(UserError, match=r"hash is not the one in small\.lock, and installed nothing"):
        overlay.site.build("small")
    assert _left(world) == []


def test_a_wheel_that_is_not_there_is_named(world: Path) -> None:
    (world / "wheels" / "beta-1.0-py3-none-any.whl").unlink()
    with pytest.raises(UserError, match=r"pip does not find beta==1\.0, which the overlay profile small pins"):
        overlay.site.build("small")
    assert _left(world) == []


def test_a_killed_build_is_never_used_and_its_rest_goes(world: Path) -> None:
    program = (
        "from pathlib import Path; import overlay.site; from overlay import profiles\n"
        f"profiles.PROFILES = Path({str(profiles.PROFILES)!r}); overlay.site.STORE = Path({str(world / 'store')!r})\n"
        "overlay.site.build('small')"
    )
    build = subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not _left(world) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(build.pid, signal.SIGKILL)
    build.wait()
    leftovers = _left(world)
    assert len(leftovers) == 1 and leftovers[0].startswith(".small-"), "killed too late to show anything"
    site = overlay.site.build("small")
    assert _imports(site) == "alphabetagamma"
    assert _left(world) == [site.root.parent.name]


def test_a_site_whose_python_has_gone_is_made_anew(world: Path) -> None:
    site = overlay.site.build("small")
    site.python.unlink()
    assert _imports(overlay.site.build("small")) == "alphabetagamma"
