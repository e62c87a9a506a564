"""A host's installed package, over a real SSH connection: brought here whole, compared, never taken silently."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from snapshot import archive, host
from snapshot.__main__ import main
from snapshot.manifest import Manifest
from tests.snapshot.conftest import overwrite
from tests.sshd import Sshd
from tools.cli import UserError
from tools.transport import TimedOut, Unreachable, base

EDITED, DELETED, ADDED = "sglang/srt/server_args.py", "sglang/version.py", "sglang/srt/new.py"


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, real_wheel: Path) -> Path:
    root = tmp_path_factory.mktemp("package") / "tree"
    archive.unpack_zip(real_wheel, root, only="sglang")
    return root


@pytest.fixture
def site(tmp_path: Path, package: Path) -> Path:
    """The site-packages of a virtual environment `venv` with the pinned package installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    found = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    shutil.copytree(package / "sglang", found / "sglang", copy_function=os.link)
    state_version(found, "0.5.11")
    return found


def state_version(site: Path, version: str) -> None:
    shutil.rmtree(next(site.glob("sglang-*.dist-info"), site / "none"), ignore_errors=True)
    info = site / f"sglang-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")


def snapshot(verb: str, site: Path, *options: str, name: str = "box") -> int:
    return main([verb, "--host", name, "--python", str(site.parents[2] / "bin" / "python"), *options])


@pytest.mark.parametrize("name", ["box", "local"])
def test_a_host_with_the_pinned_package_gives_the_pinned_tree(
    name: str, sshd: Sshd, cache: Path, site: Path, pin: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "sglang/__pycache__").mkdir()
    (site / "sglang/__pycache__/x.cpython-311.pyc").write_bytes(b"host's own")
    assert snapshot("fetch", site, name=name) == 0
    assert "2,529 same, 0 changed, 0 missing, 0 foreign" in capsys.readouterr().out
    kept = cache / "hosts" / name / "snapshot"
    assert sum(path.is_file() for path in kept.rglob("*")) == len(pin.files)
    assert snapshot("fetch", site, "--json", name=name) == 0  # and again, over the one that is there
    assert json.loads(capsys.readouterr().out)["installed"] == {"site": str(site), "version": "0.5.11"}
    assert sorted(path.name for path in cache.iterdir()) == ["hosts", "snapshot"]


def test_edited_deleted_and_added_files_are_named_and_the_package_is_not_taken(
    sshd: Sshd, cache: Path, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overwrite(site / EDITED, (site / EDITED).read_bytes() + b"# quick fix\n")
    (site / DELETED).unlink()
    (site / ADDED).write_bytes(b"")
    with pytest.raises(UserError, match="box: not taken"):
        snapshot("fetch", site)
    named = capsys.readouterr().out.splitlines()[:-1]
    assert [row.split(",")[0].split() for row in named] == [["foreign", ADDED], ["changed", EDITED], ["missing", DELETED]]
    assert not (cache / "hosts").exists()

    assert snapshot("check", site, "--json", name="local") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["same"], found["changed"], found["missing"], found["foreign"]) == (2527, [EDITED], [DELETED], [ADDED])

    assert snapshot("fetch", site, "--keep", name="local") == 1
    assert "NOT the pin" in capsys.readouterr().out
    assert (cache / "hosts/local/snapshot" / EDITED).read_bytes().endswith(b"# quick fix\n")


def test_another_version_is_named_and_not_taken(sshd: Sshd, cache: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state_version(site, "0.5.10.post1")
    with pytest.raises(UserError, match="not taken"):
        snapshot("fetch", site)
    assert "is version 0.5.10.post1, not 0.5.11" in capsys.readouterr().out
    assert snapshot("check", site, name="local") == 1
    assert not (cache / "hosts").exists()


def test_links_come_as_the_files_that_they_name(sshd: Sshd, cache: Path, site: Path, pin: Manifest) -> None:
    """Some installers link a package's files from their cache, one by one, and equal files with each other."""
    for name in (EDITED, "sglang/README.md"):
        (site.parent / Path(name).name).write_bytes((site / name).read_bytes())
        (site / name).unlink()
        (site / name).symlink_to(site.parent / Path(name).name)
    one, other, *_ = (name for name, digest in pin.files.items() if digest == hashlib.sha256(b"").hexdigest())
    (site / other).unlink()
    os.link(site / one, site / other)
    assert snapshot("fetch", site) == 0


def test_the_package_is_found_without_importing_it_and_not_in_the_working_directory(
    cache: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    overwrite(site / "sglang/__init__.py", b"raise SystemExit('imported')\n")
    (tmp_path / "work/sglang").mkdir(parents=True)
    (tmp_path / "work/sglang/__init__.py").write_text("")
    monkeypatch.chdir(tmp_path / "work")
    assert snapshot("check", site, name="local") == 1
    assert f"{site}/sglang against sglang 0.5.11: 2,528 same, 1 changed" in capsys.readouterr().out


def test_a_host_without_the_package_says_which_interpreter_was_asked(sshd: Sshd, cache: Path, site: Path) -> None:
    shutil.rmtree(site / "sglang")
    with pytest.raises(UserError, match=r"box: .*venv/bin/python finds no sglang \(no sglang on the import path.*HOST_PYTHON="):
        snapshot("fetch", site)
    with pytest.raises(UserError, match=r"/no/python finds no sglang \(timeout: failed to run"):
        main(["check", "--host", "box", "--python", "/no/python"])


def test_an_unknown_host_key_is_refused(sshd: Sshd, cache: Path, site: Path) -> None:
    sshd.known_hosts.write_text("")
    with pytest.raises(Unreachable, match="not in known_hosts"):
        snapshot("fetch", site)
    assert [path.name for path in cache.iterdir()] == ["snapshot"]


def test_a_changed_host_key_is_refused(sshd: Sshd, cache: Path, site: Path) -> None:
    sshd.new_host_key()  # read anew for each connection
    with pytest.raises(Unreachable, match="has changed"):
        snapshot("fetch", site)


def test_a_dead_host_is_named(sshd: Sshd, cache: Path, site: Path) -> None:
    sshd.stop()
    with pytest.raises(Unreachable, match="box: cannot connect"):
        snapshot("check", site)


@pytest.mark.parametrize("name", ["../evil", "-oProxyCommand=x", "", "a b", "/etc"])
def test_a_host_name_that_is_none_is_refused(name: str, cache: Path) -> None:
    with pytest.raises(UserError, match="not a host name") as caught:
        main(["fetch", f"--host={name}"])
    assert caught.value.code == 2


def fake_tar(sshd: Sshd, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a `tar` of our own first on the host's path: what a bad host sends is up to it."""
    tool = sshd.home / "tar"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    real = host.Transport.stream
    monkeypatch.setattr(host.Transport, "stream", lambda self, argv, **limits: real(self, [str(tool), *argv[1:]], **limits))


def test_a_hostile_stream_leaves_nothing(sshd: Sshd, cache: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = sshd.home / "bomb.tar"
    with tarfile.open(bomb, "w") as made:
        made.addfile(tarfile.TarInfo("sglang/ok.py"))
        made.addfile(tarfile.TarInfo("sglang/../../../../evil"))
    fake_tar(sshd, monkeypatch, f"cat {shlex.quote(str(bomb))}; sleep 1")
    with pytest.raises(UserError, match=r"refused.*'sglang/\.\./\.\./\.\./\.\./evil'"):
        snapshot("fetch", site)
    assert [path.name for path in cache.iterdir()] == ["snapshot"]


def test_a_file_that_is_not_what_the_host_hashed_is_named_and_nothing_is_taken(
    sshd: Sshd, cache: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody edits the package between the host's own reading and the stream."""
    other = sshd.home / "other"
    shutil.copytree(site / "sglang", other / "sglang", copy_function=os.link)
    overwrite(other / EDITED, b"edited meanwhile\n")
    fake_tar(sshd, monkeypatch, f"tar --create --gzip --directory={other} sglang")
    with pytest.raises(UserError, match=f"box: what arrived is not what the host hashed just before, in '{EDITED}'"):
        snapshot("fetch", site, "--keep")
    assert [path.name for path in cache.iterdir()] == ["snapshot"]


def test_a_stream_that_breaks_off_is_the_hosts_failure(
    sshd: Sshd, cache: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_tar(sshd, monkeypatch, "head -c 700 /dev/zero; echo 'tar: sglang: Cannot open' >&2; exit 2")
    with pytest.raises(UserError, match="exit status 2: tar: sglang: Cannot open"):
        snapshot("fetch", site)


def test_a_stalled_stream_ends_at_the_deadline(sshd: Sshd, cache: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's processes are stopped while the package comes: the connection stays up and nothing moves."""
    monkeypatch.setattr(base, "GRACE", 0.5)
    monkeypatch.setattr(host, "PULL", 1.0)
    package = sshd.home / "begin.tar"
    with tarfile.open(package, "w") as made:
        info = tarfile.TarInfo("sglang/big")
        info.size = 1 << 20
        made.addfile(info, io.BytesIO(bytes(info.size)))
    fake_tar(sshd, monkeypatch, f"head -c 200000 {package}; sleep 30")
    real = archive.unpack_tar

    def freeze_then_unpack(stream: object, destination: Path) -> None:
        begin = [stream.read(100_000)]
        sshd.freeze()
        real(SimpleNamespace(read=lambda size: begin.pop() if begin else stream.read(size)), destination)

    monkeypatch.setattr(archive, "unpack_tar", freeze_then_unpack)
    with pytest.raises(TimedOut, match="did not end within 1 s"):
        snapshot("fetch", site)
    assert [path.name for path in cache.iterdir()] == ["snapshot"]
