"""`current` is old or new, and whole, wherever a controller is killed: before and after each system call of a switch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import switch
from deploy.layout import Layout

REPO = Path(__file__).parents[2]

DIES = """
import os, signal, subprocess, sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import switch
from deploy.layout import Layout
left = {calls}
def counted(do):
    def call(*args, **kwargs):
        global left
        for done in (False, True):  # die before the call, or after it
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            if not done:
                result = do(*args, **kwargs)
        return result
    return call
for name in ("symlink", "rename", "unlink", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
switch.flush = counted(switch.flush)
switch.switch(Layout(Path({root!r})), "new", "old")
"""


def made(root: Path, *releases: str) -> Layout:
    layout = Layout(root)
    for release in releases:
        layout.release(release).mkdir(parents=True)
        (layout.release(release) / "manifest.json").write_text("{}")
    return layout


def test_a_killed_switch_leaves_old_or_new(tmp_path: Path) -> None:
    seen: list[tuple[str | None, str | None]] = []
    for calls in range(100):
        layout = made(tmp_path / str(calls), "older", "old", "new")
        switch.switch(layout, "old", "older")
        code = DIES.format(repo=str(REPO), calls=calls, root=str(layout.root))
        ended = subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode
        assert ended in (0, -signal.SIGKILL)
        for link in (layout.current, layout.previous):
            assert (link / "manifest.json").is_file()
        seen.append((switch.read(layout.current), switch.read(layout.previous)))
        switch.switch(layout, "new", "old")  # the next run mends it
        assert (switch.read(layout.current), switch.read(layout.previous)) == ("new", "old")
        if ended == 0:
            break
    assert len(seen) > 12, "fewer kills than there are system calls: the test does not see them"
    assert set(seen) == {("old", "older"), ("old", "old"), ("new", "old")}


def test_links_are_relative_and_can_be_taken_away(tmp_path: Path) -> None:
    layout = made(tmp_path, "one")
    switch.switch(layout, "one", None)
    assert os.readlink(layout.current) == "releases/one"
    assert switch.read(layout.previous) is None
    switch.switch(layout, None, None)
    assert switch.read(layout.current) is None


def test_what_is_no_link_is_not_overwritten(tmp_path: Path) -> None:
    layout = made(tmp_path, "one")
    layout.current.mkdir()
    with pytest.raises(OSError):
        switch.switch(layout, "one", None)
    assert layout.current.is_dir()


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    switch.write_atomically(tmp_path / "file", b"one")
    switch.write_atomically(tmp_path / "file", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"two"
