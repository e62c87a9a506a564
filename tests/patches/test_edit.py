"""The edit loop, with real git: edit, commit, refresh; the same bytes come back, and no work is lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from patches import edit, refresh, series
from patches.errors import PatchError
from tests.patches.world import LONG, PRISTINE, VERSION, World, fingerprint
from tools.cli import UserError

WORDS = "Why: a test\nDepends: none\nOrigin: own work\nForwarded: no\nRetire-When: never\n"
EDITS = (
    ("one", {"sglang/long.py": LONG.replace(b"line_5 = 5\n", b"line_5 = 50\n"), "sglang/new.py": b"new = 1"}),
    ("two", {"sglang/long.py": LONG.replace(b"line_30 = 30\n", b""), "sglang/deep/er/mod.py": None}),
)


class Bench:
    """The work tree of a world's series, and a person's git in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.root = world.root / "edit"

    def lay_out(self, *, force: bool = False) -> edit.Edit:
        return edit.lay_out(series.load(VERSION, where=self.world.folder), self.world.pristine, self.root, force=force)

    def refresh(self, *, force: bool = False) -> refresh.Refreshed:
        return refresh.refresh(VERSION, self.root, self.world.folder, force=force)

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, path: str, data: bytes, message: str, *options: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(data)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", message, *options)

    def patches(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.world.folder.iterdir())}


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def test_edit_then_refresh_writes_nothing(bench: Bench) -> None:
    bench.world.series(*EDITS)
    (bench.world.folder / "series").write_text(
        "# Ours.\n\n# The first.\n0001-one.patch\n# And\n# the second.\n0002-two.patch  # last\n# End.\n"
    )
    bench.lay_out()
    before = fingerprint(bench.world.folder)
    assert bench.refresh() == refresh.Refreshed(("0001-one.patch", "0002-two.patch"), (), ())
    assert fingerprint(bench.world.folder) == before
    assert bench.world.sentences() == []


def test_an_empty_series_can_be_edited_and_refreshed(bench: Bench) -> None:
    bench.world.series()
    assert bench.lay_out().commits == 0
    assert bench.git("rev-list", "--count", "HEAD") == "1"
    before = fingerprint(bench.world.folder)
    bench.refresh()
    assert fingerprint(bench.world.folder) == before


def test_a_commit_becomes_a_patch_with_everything_filled_in(bench: Bench) -> None:
    bench.world.series(EDITS[0])
    bench.lay_out()
    bench.commit("sglang/short.py", b"one = 3\n", "Make one three\n\nMore words.\n\n" + WORDS.replace("none", "one"))
    assert bench.refresh().written == ("0002-make-one-three.patch",)
    made = series.load(VERSION, where=bench.world.folder).patches[1]
    assert made.header.description == "Make one three\nMore words."
    assert made.header.depends == ("0001-one.patch",)
    assert made.header.touches == ("sglang/short.py",)
    assert bench.world.sentences() == []
    # And back again.
    before = bench.patches()
    assert bench.lay_out().made is False
    bench.lay_out(force=True)
    bench.refresh()
    assert bench.patches() == before


def test_commit_ids_are_the_same_everywhere_whatever_the_user_has_set_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.world.series(*EDITS)
    bench.lay_out()
    first = bench.git("rev-parse", "HEAD")
    assert set(bench.git("log", "--format=%at %ct %an %cn").splitlines()) == {"1767225600 1767225600 patch series patch series"}
    # A hostile home: hooks that fail, line-end conversion, ignored files, an outer repository, git's own variables.
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    ignore = tmp_path / "ignore"
    ignore.write_text("*.py\n*.bin\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f"[core]\n hooksPath = {hooks}\n autocrlf = true\n excludesFile = {ignore}\n"
        "[commit]\n gpgSign = true\n[diff]\n noprefix = true\n"
    )
    subprocess.run(["git", "init", "--quiet", str(bench.world.root)], check=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    bench.lay_out(force=True)
    monkeypatch.delenv("GIT_DIR")
    assert bench.git("rev-parse", "HEAD") == first
    before = bench.patches()
    bench.refresh()
    assert bench.patches() == before
    # A person's own commit in there is not caught by the hook or the conversion either.
    bench.commit("sglang/short.py", b"one = 3\n", "Make one three\n\n" + WORDS)
    assert bench.refresh().written == ("0003-make-one-three.patch",)


def test_reordered_commits_are_numbered_anew_and_dependencies_follow(bench: Bench) -> None:
    bench.world.series()
    bench.lay_out()
    bench.commit("sglang/a.py", b"a = 1\n", "Add a\n\n" + WORDS)
    bench.commit("sglang/b.py", b"b = 1\n", "Add b\n\n" + WORDS)
    bench.commit("sglang/c.py", b"c = 1\n", "Add c\n\n" + WORDS.replace("none", "0002-add-b.patch"))
    bench.refresh()
    environment = os.environ | {"GIT_SEQUENCE_EDITOR": "sed -i -e '1{h;d}' -e 2G"}
    subprocess.run(["git", "-C", str(bench.root), "rebase", "-i", "HEAD~3"], check=True, capture_output=True, env=environment)
    done = bench.refresh()
    assert done.written == ("0001-add-b.patch", "0002-add-a.patch", "0003-add-c.patch")
    assert done.removed == ("0001-add-a.patch", "0002-add-b.patch")
    assert series.load(VERSION, where=bench.world.folder).patches[2].header.depends == ("0001-add-b.patch",)
    assert bench.world.sentences() == []


def test_a_dropped_commit_takes_its_patch_away(bench: Bench) -> None:
    bench.world.series(*EDITS)
    bench.lay_out()
    bench.git("reset", "--quiet", "--hard", "HEAD~1")
    assert bench.refresh() == refresh.Refreshed(("0001-one.patch",), (), ("0002-two.patch",))
    assert bench.world.sentences() == []


def test_a_commit_without_a_header_is_told_all_that_it_lacks(bench: Bench) -> None:
    bench.world.series()
    bench.lay_out()
    bench.commit("sglang/short.py", b"one = 3\n", "Make one three\n\nWhy: a test\nOrigin: own work\n")
    bench.commit("sglang/short.py", b"one = 4\n", "fixup! Make one three")
    before = fingerprint(bench.world.folder)
    with pytest.raises(UserError) as caught:
        bench.refresh()
    text = str(caught.value)
    assert "(Make one three): the header lacks Depends, Forwarded, Retire-When" in text
    assert "(fixup! Make one three): the header lacks Why, Depends, Origin, Forwarded, Retire-When" in text
    assert "git commit --amend" in text
    assert fingerprint(bench.world.folder) == before


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        ("other/x.py", b"x = 1\n", "other/x.py, which is not under sglang/"),
        ("sglang/empty.py", b"", "empty file"),
        ("sglang/data.bin", b"\xff\xfe", "not UTF-8"),
        ("sglang/short.py", b"one = 1\r\n", "CRLF"),
    ],
)
def test_a_commit_that_cannot_be_a_patch_is_named_with_the_file(bench: Bench, path: str, data: bytes, reason: str) -> None:
    bench.world.series()
    bench.lay_out()
    bench.commit(path, data, "Do it\n\n" + WORDS)
    before = fingerprint(bench.world.folder)
    with pytest.raises(UserError, match=rf"commit \w+ \(Do it\).*{path}.*") as caught:
        bench.refresh()
    assert reason in str(caught.value)
    assert fingerprint(bench.world.folder) == before


def test_modes_links_and_merges_are_refused(bench: Bench) -> None:
    bench.world.series()
    bench.lay_out()
    base = bench.git("rev-parse", "HEAD")
    (bench.root / "sglang/short.py").chmod(0o755)
    bench.git("commit", "--quiet", "-am", "Run it\n\n" + WORDS)
    with pytest.raises(UserError, match=r"sglang/short\.py of mode 100755"):
        bench.refresh()
    bench.git("reset", "--quiet", "--hard", base)
    (bench.root / "sglang/link.py").symlink_to("short.py")
    bench.git("add", "--all")
    bench.git("commit", "--quiet", "-m", "Link it\n\n" + WORDS)
    with pytest.raises(UserError, match=r"sglang/link\.py a symbolic link"):
        bench.refresh()
    bench.git("reset", "--quiet", "--hard", base)
    bench.git("checkout", "--quiet", "-b", "side")
    bench.commit("sglang/s.py", b"s = 1\n", "Side\n\n" + WORDS)
    bench.git("checkout", "--quiet", "series")
    bench.commit("sglang/m.py", b"m = 1\n", "Main\n\n" + WORDS)
    bench.git("merge", "--quiet", "--no-edit", "side")
    with pytest.raises(UserError, match="is a merge"):
        bench.refresh()
    assert bench.world.sentences() == []


def test_work_that_is_not_in_the_patches_is_never_overwritten(bench: Bench) -> None:
    bench.world.series(EDITS[0])
    bench.lay_out()
    (bench.root / "sglang/short.py").write_bytes(b"one = 3\n")
    with pytest.raises(UserError, match=r"uncommitted changes \(sglang/short\.py\)"):
        bench.lay_out()
    with pytest.raises(UserError, match=r"uncommitted changes \(sglang/short\.py\)"):
        bench.refresh()
    bench.git("commit", "--quiet", "-am", "Make one three\n\n" + WORDS)
    with pytest.raises(UserError, match="commits that are not in the patches yet: run `make refresh`"):
        bench.lay_out()
    mine = bench.git("rev-parse", "HEAD")
    aside = bench.lay_out(force=True).aside
    assert (
        aside
        and subprocess.run(
            ["git", "-C", str(aside), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        == mine
    )
    assert bench.git("rev-list", "--count", "HEAD") == "2"


def test_patches_that_changed_since_edit_are_not_overwritten(bench: Bench) -> None:
    bench.world.series(EDITS[0])
    bench.lay_out()
    bench.world.series(*EDITS)  # Somebody else's, by a pull.
    before = fingerprint(bench.world.folder)
    with pytest.raises(UserError, match="not those that `make edit` laid out"):
        bench.refresh()
    assert fingerprint(bench.world.folder) == before
    # The work tree has nothing of its own, so it follows; its commits may still be the only copy of patches taken back.
    mine = bench.git("rev-parse", "HEAD")
    followed = bench.lay_out()
    assert followed.made and bench.refresh().written == ()
    assert followed.aside and mine in (followed.aside / ".git/refs/heads/series").read_text()


def test_two_patches_of_one_name_and_an_unknown_dependency_are_refused(bench: Bench) -> None:
    bench.world.series()
    bench.lay_out()
    bench.commit("sglang/a.py", b"a = 1\n", "Add it\n\n" + WORDS)
    bench.commit("sglang/b.py", b"b = 1\n", "Add it\n\n" + WORDS)
    with pytest.raises(UserError, match="Patch: another-name"):
        bench.refresh()
    bench.git("commit", "--quiet", "--amend", "-m", "Add b\n\n" + WORDS.replace("none", "nothing-such"))
    with pytest.raises(UserError, match="depends on nothing-such"):
        bench.refresh()


def test_the_work_tree_shares_no_file_with_the_pristine_tree(bench: Bench) -> None:
    bench.world.series(*EDITS)
    bench.lay_out()
    for path in PRISTINE:
        if (bench.root / path).exists():
            assert not (bench.root / path).samefile(bench.world.pristine / path)


def test_a_bad_series_is_not_laid_out(bench: Bench) -> None:
    bench.world.series(*EDITS)
    path = bench.world.folder / "0002-two.patch"
    path.write_bytes(path.read_bytes().replace(b"-line_30 = 30", b"-line_30 = 31"))
    with pytest.raises(PatchError, match=r"0002-two\.patch:\d+: "):
        bench.lay_out()
    assert not bench.root.exists() and not list(bench.world.root.glob(".edit*"))
