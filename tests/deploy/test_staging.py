"""A release is whole or not there, depends on nothing that a checkout may change, and is a function of its inputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import manifest, staging
from deploy.inputs import Inputs
from deploy.layout import Layout
from deploy.slot import ENGINE
from tests.deploy import world
from tools.cli import UserError

Make = Callable[..., Inputs]


def test_a_release_holds_everything(layout: Layout, inputs_of: Make) -> None:
    wanted = inputs_of()
    made = staging.stage(wanted, layout)
    site = layout.release(wanted.release) / "site"
    assert made == manifest.load(site.parent)
    assert made.files.keys() == {
        *wanted.files,
        "shim.py",
        "overlay_startup.py",
        "sitecustomize.py",
        "release_attestation.py",
    }
    assert "release_attestation" in (site / "sitecustomize.py").read_text()
    assert (site / "overlay_startup.py").read_text() == "import shim\n"
    unit = json.loads((site.parent / "units" / "engine.json").read_text())
    assert unit["argv"][-2:] == ["--weight-version", wanted.release]
    env = (site.parent / "env" / "engine.env").read_text().splitlines()
    assert f"PYTHONPATH={site}" in env and f"SGLANG_ATTEST_DIR={layout.attest(ENGINE)}" in env
    assert (site.parent / "probes.json").read_bytes() == wanted.pair.probes.read_bytes()


def test_the_overlay_is_linked_and_what_a_checkout_changes_is_copied(layout: Layout, inputs_of: Make) -> None:
    wanted = inputs_of()
    staging.stage(wanted, layout)
    site = layout.release(wanted.release) / "site"
    assert (site / "package" / "__init__.py").samefile(wanted.site / "package" / "__init__.py")
    before = (site / "sglang" / "version.py").read_bytes()
    for edited in (wanted.tree / "sglang" / "version.py", wanted.shims / "shim.py"):
        edited.write_text("EDITED = True\n")
    assert (site / "sglang" / "version.py").read_bytes() == before
    assert (site / "shim.py").read_text() == "LOADED = True\n"


def test_a_shim_in_place_of_an_overlay_file_does_not_write_through_the_link(layout: Layout, inputs_of: Make) -> None:
    wanted = inputs_of()
    (wanted.shims / "package").mkdir()
    (wanted.shims / "package" / "__init__.py").write_text("ANSWER = 43\n")
    staging.stage(wanted, layout)
    assert (wanted.site / "package" / "__init__.py").read_text() == "ANSWER = 42\n"


def test_another_file_system_gets_copies(layout: Layout, inputs_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    wanted = inputs_of()
    assert staging.stage(wanted, layout).linked == 1
    copy = layout.release(wanted.release) / "site" / "package" / "__init__.py"
    assert copy.read_text() == "ANSWER = 42\n" and not copy.samefile(wanted.site / "package" / "__init__.py")


def test_two_stagings_of_equal_inputs_are_equal(inputs_of: Make, tmp_path: Path) -> None:
    wanted = inputs_of()
    documents = []
    for name in ("one", "two"):
        layout = Layout(tmp_path / name)
        staging.stage(wanted, layout)
        documents.append((layout.release(wanted.release) / "manifest.json").read_bytes())
    assert documents[0] == documents[1]


def test_a_tree_that_is_not_what_the_series_gives_is_refused(layout: Layout, inputs_of: Make) -> None:
    wanted = inputs_of()
    (wanted.tree / "sglang" / "version.py").write_text("VERSION = 'edited'\n")
    (wanted.tree / "sglang" / "foreign.py").write_text("")
    with pytest.raises(UserError, match=r"not what the series gives, in sglang/foreign.py, sglang/version.py"):
        staging.stage(wanted, layout)
    assert list(layout.releases.iterdir()) == []


def test_a_full_disk_is_seen_before_anything_is_written(layout: Layout, inputs_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "RESERVE", 1 << 60)
    with pytest.raises(UserError, match=r"MiB free, the release needs \d+ MiB: make room"):
        staging.stage(inputs_of(), layout)
    assert list(layout.releases.iterdir()) == []


def test_half_a_release_is_replaced(layout: Layout, inputs_of: Make) -> None:
    wanted = inputs_of()
    half = layout.release(wanted.release)
    (half / "site").mkdir(parents=True)
    (layout.releases / ".new-other" / "site").mkdir(parents=True)
    assert manifest.load(half) is None
    staging.stage(wanted, layout)
    assert manifest.load(half) is not None
    assert [path.name for path in layout.releases.iterdir()] == [wanted.release]


DIES = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import staging, switch
from deploy.layout import Layout
from tests.deploy import world
entry = world.make_entry(Path({root!r}), slots=world.slots(port=31999))
wanted = world.make_inputs(Path({folder!r}), entry)
left = {calls}
def hook(event, args):
    global left
    if event in ("open", "os.link", "os.mkdir", "os.rename", "shutil.copyfile", "shutil.rmtree"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
staging.stage(wanted, Layout(Path({root!r})))
"""


def test_a_staging_that_is_killed_leaves_no_release_or_a_whole_one(tmp_path: Path) -> None:
    repo, root = str(Path(__file__).parents[2]), tmp_path / "root"
    root.mkdir()
    layout, killed = Layout(root), 0
    entry = world.make_entry(root, slots=world.slots(port=31999))
    wanted = world.make_inputs(tmp_path, entry)
    for calls in range(0, 2000, 23):
        code = DIES.format(repo=repo, root=str(root), folder=str(tmp_path), calls=calls)
        ended = subprocess.run([sys.executable, "-c", code], cwd=repo, timeout=60, check=False).returncode
        named = [path.name for path in layout.releases.glob("[!.]*")] if layout.releases.exists() else []
        assert named in ([], [wanted.release])
        if named:
            assert manifest.load(layout.release(wanted.release))
            break
        assert ended == -signal.SIGKILL
        killed += 1
    assert named and killed > 3
    assert ended in (0, -signal.SIGKILL)
