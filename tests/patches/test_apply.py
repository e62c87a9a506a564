"""Applying to a tree in place: every outcome, all or nothing, and never through a link."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patches import apply, report, write
from patches.apply import Outcome
from patches.series import Series
from tests.patches.world import LONG, PRISTINE, World, fingerprint
from tools.cli import UserError
from tools.paths import REPO

EDITED = LONG.replace(b"line_5 = 5\n", b"line_5 = 50\n")
AGAIN = EDITED.replace(b"line_30 = 30\n", b"line_30 = 300\nline_30b = 1\n")
LAST = {
    "sglang/long.py": AGAIN,
    "sglang/new/mod.py": b"new = 1\n",
    "sglang/no_newline.py": b"first = 1\nlast = 2\n",
    "sglang/deep/er/mod.py": None,
}


@pytest.fixture
def series(world: World) -> Series:
    """Two patches; the second stands on the first, creates a file in a new folder, and deletes one."""
    return world.series(("one", {"sglang/long.py": EDITED}), ("two", LAST))


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def outcomes(result: apply.Report) -> dict[str, Outcome]:
    return {finding.path: finding.outcome for finding in result.findings}


def test_apply_then_already_then_reverse_to_the_very_bytes(world: World, series: Series) -> None:
    before = fingerprint(world.site)
    first = apply.apply(series, world.site)
    assert first.ok and first.written == tuple(sorted(LAST))
    assert contents(world.site) == {path: data for path, data in {**PRISTINE, **LAST}.items() if data is not None}
    assert not (world.site / "sglang/deep").exists()
    patched = fingerprint(world.site)

    second = apply.apply(series, world.site)
    assert second.written == () and set(outcomes(second).values()) == {Outcome.ALREADY}
    assert fingerprint(world.site) == patched

    assert apply.reverse(series, world.site).written == tuple(sorted(LAST))
    assert fingerprint(world.site) == before
    assert set(outcomes(apply.reverse(series, world.site)).values()) == {Outcome.ALREADY}


def test_a_dry_run_says_the_same_and_writes_nothing(world: World, series: Series) -> None:
    before = fingerprint(world.site)
    dry = apply.apply(series, world.site, dry_run=True)
    assert fingerprint(world.site) == before and dry.written == ()
    assert dry.findings == apply.apply(series, world.site).findings


def test_an_empty_series_has_nothing_to_do(world: World) -> None:
    before = fingerprint(world.site)
    result = apply.apply(world.series(), world.site)
    assert result.ok and result.findings == () and fingerprint(world.site) == before


def moved(site: Path) -> None:
    (site / "sglang/long.py").write_bytes(b"# one more\n" + LONG)


def touched_elsewhere(site: Path) -> None:
    (site / "sglang/long.py").write_bytes(LONG.replace(b"line_18 = 18\n", b"line_18 = 81\n"))


def changed_at_the_hunk(site: Path) -> None:
    (site / "sglang/long.py").write_bytes(b"# one more\n" + LONG.replace(b"line_5 = 5\n", b"line_5 = 6\n"))


def doubled(site: Path) -> None:
    (site / "sglang/long.py").write_bytes(b"# one more\n" + LONG + LONG)


def gone(site: Path) -> None:
    (site / "sglang/long.py").unlink()


def half_done(site: Path) -> None:
    (site / "sglang/long.py").write_bytes(EDITED)


def in_the_way(site: Path) -> None:
    (site / "sglang/new").mkdir()
    (site / "sglang/new/mod.py").write_bytes(b"theirs = 1\n")


def folder_in_the_way(site: Path) -> None:
    (site / "sglang/new/mod.py").mkdir(parents=True)


def link_out(site: Path) -> None:
    outside = site.parent / "outside.py"
    outside.write_bytes(LONG)
    (site / "sglang/long.py").unlink()
    (site / "sglang/long.py").symlink_to(outside)


def parent_link_out(site: Path) -> None:
    outside = site.parent / "outside"
    outside.mkdir()
    (site / "sglang/new").symlink_to(outside)


@pytest.mark.parametrize(
    ("drift", "path", "outcome", "words"),
    [
        (moved, "sglang/long.py", Outcome.DRIFTED, ["+1 lines away", "every hunk would apply"]),
        (touched_elsewhere, "sglang/long.py", Outcome.DRIFTED, ["every hunk would apply"]),
        (half_done, "sglang/long.py", Outcome.CONFLICT, ["it is as 0001-one.patch leaves it", "finds no place"]),
        (
            changed_at_the_hunk,
            "sglang/long.py",
            Outcome.CONFLICT,
            ["finds no place; most like it is line 3", "-line_5 = 5", "+line_5 = 6"],
        ),
        (doubled, "sglang/long.py", Outcome.CONFLICT, ["finds 2 places"]),
        (gone, "sglang/long.py", Outcome.ABSENT, ["0001-one.patch changes it"]),
        (in_the_way, "sglang/new/mod.py", Outcome.FOREIGN, ["0002-two.patch creates it"]),
        (folder_in_the_way, "sglang/new/mod.py", Outcome.FOREIGN, ["no plain file"]),
        (link_out, "sglang/long.py", Outcome.FOREIGN, ["symbolic link to", "outside.py"]),
        (parent_link_out, "sglang/new/mod.py", Outcome.FOREIGN, ["sglang/new is a symbolic link to"]),
    ],
)
def test_a_tree_that_is_not_the_pinned_one_is_left_alone(
    world: World, series: Series, drift: Callable[[Path], None], path: str, outcome: Outcome, words: list[str]
) -> None:
    drift(world.site)
    before = fingerprint(world.root)
    result = apply.apply(series, world.site)
    assert outcomes(result) == dict.fromkeys(LAST, Outcome.APPLIED) | {path: outcome}
    assert not result.ok and result.written == ()
    assert fingerprint(world.root) == before
    text = "\n".join(report.applied(result))
    for word in words:
        assert word in text


def test_every_failure_is_listed_at_once(world: World, series: Series) -> None:
    gone(world.site)
    in_the_way(world.site)
    (world.site / "sglang/no_newline.py").write_bytes(b"other = 1\n")
    found = outcomes(apply.apply(series, world.site))
    assert [outcome.value for _, outcome in sorted(found.items())] == ["applied", "absent", "foreign", "conflict"]


def test_a_hard_link_keeps_its_other_names_content(world: World, series: Series, tmp_path: Path) -> None:
    for path in PRISTINE:
        other = tmp_path / "cache" / path
        other.parent.mkdir(parents=True, exist_ok=True)
        os.link(world.site / path, other)
    apply.apply(series, world.site)
    assert contents(tmp_path / "cache") == PRISTINE
    apply.reverse(series, world.site)
    assert contents(world.site) == contents(tmp_path / "cache")


def test_modes_stay_and_stale_bytecode_goes(world: World, series: Series) -> None:
    target = world.site / "sglang/long.py"
    target.chmod(0o751)
    cache = world.site / "sglang/__pycache__"
    cache.mkdir()
    for name in ("long.cpython-311.pyc", "long.cpython-311.opt-1.pyc", "longer.cpython-311.pyc"):
        (cache / name).write_bytes(b"stale")
    apply.apply(series, world.site)
    assert target.stat().st_mode & 0o777 == 0o751
    assert (world.site / "sglang/new/mod.py").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in cache.iterdir()] == ["longer.cpython-311.pyc"]


def test_a_root_that_is_a_link_itself_is_followed(world: World, series: Series, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(world.site)
    assert apply.apply(series, tmp_path / "current").ok
    assert (world.site / "sglang/new/mod.py").exists()


def test_a_repository_around_the_target_changes_nothing(world: World, series: Series) -> None:
    subprocess.run(["git", "init", "--quiet", str(world.root)], check=True)
    (world.root / ".gitignore").write_text("site/\n")
    assert apply.apply(series, world.site).written == tuple(sorted(LAST))


def test_a_full_disk_leaves_everything_as_it_was(world: World, series: Series) -> None:
    before = fingerprint(world.site)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel refuses to let any file grow over 300 bytes: small new files can be written, the long one cannot.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(UserError, match="every file is as it was") as caught:
            apply.apply(series, world.site)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == 1
    assert fingerprint(world.site) == before
    assert apply.apply(series, world.site).ok


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_rename_that_fails_is_followed_by_putting_back(
    world: World, series: Series, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    before = fingerprint(world.site)
    monkeypatch.setattr(write.os, "replace", failing(at={fails_at}))
    with pytest.raises(UserError, match="every file is as it was"):
        apply.apply(series, world.site)
    assert fingerprint(world.site) == before


def test_what_could_not_be_put_back_is_named_and_kept(world: World, series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    # Renames: long.py, new/mod.py, no_newline.py (fails), then back: no_newline.py, long.py (fails), deep/er/mod.py.
    monkeypatch.setattr(write.os, "replace", failing(at={3, 5}))
    with pytest.raises(UserError, match=r"could not be put back: \S*sglang/long\.py; ") as caught:
        apply.apply(series, world.site)
    assert caught.value.code == 4
    assert (world.site / "sglang/.long.py.patch-old").read_bytes() == LONG
    (world.site / "sglang/.long.py.patch-old").replace(world.site / "sglang/long.py")
    assert contents(world.site) == PRISTINE


def failing(at: set[int]) -> Callable[[Path, Path], None]:
    real, calls = os.replace, iter(range(1, 100))

    def replace(source: Path, target: Path) -> None:
        if next(calls) in at:
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    return replace


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_a_run_after_a_killed_one_finishes_the_work(world: World, series: Series, dies_at: int) -> None:
    code = f"""
import os, sys
from pathlib import Path
from patches import apply, series
real, calls = os.replace, iter(range(1, 100))
os.replace = lambda *names: os._exit(9) if next(calls) == {dies_at} else real(*names)
apply.apply(series.load(where=Path({str(world.folder)!r})), Path({str(world.site)!r}))
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=REPO, check=False).returncode == 9
    half = contents(world.site)
    assert all(half.get(path) in (PRISTINE.get(path), data) for path, data in LAST.items())
    result = apply.apply(series, world.site)
    assert result.ok
    assert set(outcomes(result).values()) == {Outcome.APPLIED, Outcome.ALREADY}
    left = contents(world.site)
    assert {path: left.get(path) for path in LAST} == LAST
    # Nothing of the killed run is left beside the files of the one that finished.
    again = apply.reverse(series, world.site)
    assert again.ok and contents(world.site) == PRISTINE
