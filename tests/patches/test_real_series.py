"""The series of this repository, whatever is in it, on the pinned tree, through the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patches import check, edit, refresh, series, tree
from patches.apply import apply, reverse, sha256
from snapshot.tree import pristine
from tests.patches.world import fingerprint
from tools.cli import UserError
from tools.paths import REPO, VERSION


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "patches", *arguments], cwd=REPO, check=False, capture_output=True, text=True)


def test_check_passes_with_one_line_a_patch() -> None:
    pristine(VERSION)
    done = run("check")
    assert done.returncode == 0, done.stdout + done.stderr
    names = [name for _, name in series.names(series.folder())]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == names
    assert all(line.endswith("  ok") for line in lines[:-1]) and lines[-1].startswith(f"{len(names)} patch")
    found = json.loads(run("check", "--json").stdout)
    assert found["ok"] and [item["name"] for item in found["patches"]] == names


def test_tree_prints_a_path_whose_files_have_the_post_images() -> None:
    root = Path(run("tree").stdout.strip())
    for path, post in series.load().post_images.items():
        assert sha256((root / path).read_bytes() if (root / path).exists() else None) == post
    assert (root / "sglang/srt/server_args.py").is_file()


def test_in_place_and_back_is_the_tree_of_before(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(pristine(VERSION), site, ignore=shutil.ignore_patterns("__pycache__"))
    before = fingerprint(site)
    patched = series.load()
    assert apply(patched, site).ok
    built = tree.build().root
    assert {path: (site / path).read_bytes() for path in tree.files(site)} == {
        path: (built / path).read_bytes() for path in tree.files(built)
    }
    assert reverse(patched, site).ok and fingerprint(site) == before


def test_a_sound_series_may_be_deployed() -> None:
    check.require(VERSION, series.folder(), lambda: pristine(VERSION))


def test_edit_then_refresh_gives_the_same_bytes(tmp_path: Path) -> None:
    where = tmp_path / "series"
    shutil.copytree(series.folder(), where)
    before = fingerprint(where)
    edit.lay_out(series.load(where=where), pristine(VERSION), tmp_path / "edit")
    done = refresh.refresh(VERSION, tmp_path / "edit", where)
    assert done.written == done.removed == () and fingerprint(where) == before


def test_one_changed_byte_of_any_patch_is_noticed_with_file_and_line(tmp_path: Path) -> None:
    """One byte in the middle of each patch's header, and one in the middle of its diff."""
    root = pristine(VERSION)
    for name in [name for _, name in series.names(series.folder())]:
        data = (series.folder() / name).read_bytes()
        border = data.index(b"\n---\n")
        for at in (border // 2, (border + len(data)) // 2):
            where = tmp_path / f"{name}-{at}"
            shutil.copytree(series.folder(), where)
            (where / name).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            result = check.check(VERSION, where, lambda: root)
            findings = [finding for verdict in result.verdicts for finding in verdict.findings]
            with pytest.raises(UserError, match="not fit to be deployed: "):
                check.require(VERSION, where, lambda: root)
            assert not result.ok and findings[0].line is not None and findings[0].file in (name, *tree.files(root))


def test_one_changed_byte_of_the_tree_is_noticed_with_file_and_line(tmp_path: Path) -> None:
    """In a checkout of its own, since the tree of this one is everybody's."""
    checkout = tmp_path / "checkout"
    for room in ("patches", "snapshot", "tools"):
        shutil.copytree(REPO / room, checkout / room, ignore=shutil.ignore_patterns("__pycache__"))
    root = pristine(VERSION)
    shutil.copytree(root.parent, checkout / ".cache/snapshot", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "patches", "check"]
    done = subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    victim = checkout / ".cache/snapshot" / root.name / "sglang/srt/speculative/dflash_info.py"
    lines = victim.read_bytes().split(b"\n")
    lines[99] = lines[99] + b" "
    victim.chmod(0o644)
    victim.write_bytes(b"\n".join(lines))
    done = subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "sglang/srt/speculative/dflash_info.py, from line 100" in done.stdout
