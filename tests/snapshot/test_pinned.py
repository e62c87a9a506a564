"""The real wheel: pinned, laid out, verified, and every tampering with it noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from snapshot import manifest, tree, wheel
from snapshot.__main__ import main
from snapshot.manifest import Manifest
from tests.snapshot.conftest import overwrite
from tools.cli import UserError
from tools.files import sha256

EDITED, DELETED, ADDED = "sglang/srt/server_args.py", "sglang/version.py", "sglang/srt/extra/new.py"


def test_the_manifest_is_what_the_wheel_says(pin: Manifest, real_wheel: Path) -> None:
    assert manifest.of_wheel(real_wheel, "0.5.11").dump() == manifest.location("0.5.11").read_text()
    assert (len(pin.files), pin.wheel_sha256) == (2529, sha256(real_wheel))


def test_pinning_writes_the_same_bytes_again(real_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = manifest.location("0.5.11").read_bytes()
    (tmp_path / "snapshot").mkdir()
    monkeypatch.setattr(manifest, "REPO", tmp_path)
    assert main(["pin", str(real_wheel)]) == 0
    assert (tmp_path / "snapshot/0.5.11/manifest.json").read_bytes() == committed


def test_only_a_wheel_of_sglang_can_be_pinned(tmp_path: Path) -> None:
    (tmp_path / "rich-15.0.0-py3-none-any.whl").write_bytes(b"")
    for name in ("rich-15.0.0-py3-none-any.whl", "nothing.whl", "sglang-1-py3-none-any.whl"):
        with pytest.raises(UserError, match=name):
            main(["pin", str(tmp_path / name)])


def test_a_version_without_a_pin_says_how_to_make_one() -> None:
    with pytest.raises(UserError, match=r"sglang 9\.9 is not pinned here.*snapshot pin"):
        manifest.load("9.9")


@pytest.mark.parametrize("damage", [lambda text: text[:-5], lambda text: text.replace('"count": 2529', '"count": 2528')])
def test_a_damaged_manifest_is_refused(damage: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = manifest.location("0.5.11").read_text()
    (tmp_path / "snapshot/0.5.11").mkdir(parents=True)
    (tmp_path / "snapshot/0.5.11/manifest.json").write_text(damage(text))
    monkeypatch.setattr(manifest, "REPO", tmp_path)
    with pytest.raises(UserError, match="manifest"):
        manifest.load()


def test_the_tree_is_laid_out_once_and_is_the_pin(cache: Path, pin: Manifest, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch"]) == 0
    assert "2,529 files, exactly as pinned" in capsys.readouterr().out
    root = tree.location()
    laid_out = root.stat().st_ino
    assert tree.pristine() == root and root.stat().st_ino == laid_out
    assert main(["check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": "0.5.11", "same": 2529, "changed": [], "missing": [], "foreign": [], "installed": None,
    }  # fmt: skip
    assert sorted(path.name for path in (cache / "snapshot").iterdir()) == ["0.5.11", pin.wheel]


def test_an_edited_a_deleted_and_an_added_file_are_named_and_no_other(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree.pristine()
    data = (root / EDITED).read_bytes()
    at = data.index(b"class ServerArgs")
    overwrite(root / EDITED, data[:at] + b"C" + data[at + 1 :])
    (root / DELETED).unlink()
    (root / ADDED).parent.mkdir()
    (root / ADDED).write_bytes(b"")
    capsys.readouterr()

    assert main(["check"]) == 1
    *named, total = capsys.readouterr().out.splitlines()
    line = data[:at].count(b"\n") + 1
    assert [row.split(maxsplit=1) for row in named] == [
        ["foreign", ADDED], ["changed", f"{EDITED}, from line {line}"], ["missing", DELETED],
    ]  # fmt: skip
    assert total.endswith("2,527 same, 1 changed, 1 missing, 1 foreign")
    with pytest.raises(UserError) as caught:
        tree.pristine()
    assert all(f"{name}" in str(caught.value) for name in (f"{EDITED}, from line {line}", DELETED, ADDED))


def test_without_a_snapshot_a_check_says_how_to_make_one(cache: Path) -> None:
    with pytest.raises(UserError, match="make snapshot"):
        main(["check"])


def test_a_tampered_wheel_is_refused(cache: Path, pin: Manifest) -> None:
    kept = cache / "snapshot" / pin.wheel
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(kept, bytes(data))
    with pytest.raises(UserError, match=rf"{pin.wheel} is not the pinned wheel.*{pin.wheel_sha256}"):
        tree.pristine()
    assert not tree.location().exists()


def test_the_wheel_is_downloaded_by_its_hash_alone(
    cache: Path, pin: Manifest, real_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is a folder here, with a wheel in it that is the pinned one but for one byte."""
    kept = cache / "snapshot" / pin.wheel
    shelf = cache / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")

    kept.unlink()
    with pytest.raises(UserError, match=r"could not be fetched.*needs a package index.*No matching distribution"):
        wheel.fetch(pin)

    (shelf / pin.wheel).write_bytes(real_wheel.read_bytes()[:-1] + b"\1")
    with pytest.raises(UserError, match=r"could not be fetched.*(?i:hash)"):
        wheel.fetch(pin)
    assert not kept.exists()

    shutil.copy(real_wheel, shelf)
    assert wheel.fetch(pin) == kept and sha256(kept) == pin.wheel_sha256
