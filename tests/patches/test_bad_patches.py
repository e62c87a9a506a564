"""Every bad patch gets one sentence with its file and line, and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from patches import apply, refresh, series
from patches.errors import PatchError
from tests.patches.world import LONG, PRISTINE, World, fingerprint

NAME = "0001-bad.patch"
GOOD = {
    "sglang/blank.py": b"a = 1\n\nb = 3\n",
    "sglang/long.py": LONG.replace(b"line_5 = 5\n", b"line_5 = 50\n").replace(b"line_30 = 30\n", b"line_30 = 300\n"),
    "sglang/new.py": b"new = 1\n",
    "sglang/no_newline.py": b"first = 1\nlast = 3",
}


def replaced(old: str, new: str, count: int = 1) -> Callable[[bytes], bytes]:
    """The patch with the first `count` of `old` replaced, which must be there."""

    def change(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode(), count)

    return change


def in_diff(old: str, new: str) -> Callable[[bytes], bytes]:
    """Like `replaced`, below the header only."""

    def change(data: bytes) -> bytes:
        head, mark, diff = data.partition(b"\n---\n")
        assert old.encode() in diff
        return head + mark + diff.replace(old.encode(), new.encode(), 1)

    return change


def renamed(path: str, to: str) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(path.encode(), to.encode())


def only_header(data: bytes) -> bytes:
    return data.partition(b"\n---\n")[0] + b"\n---\n"


def twice(data: bytes) -> bytes:
    at = data.index(b"--- /dev/null")
    return data + data[at : data.index(b"--- a/sglang/no_newline")]


def swapped_hunks(data: bytes) -> bytes:
    first, second, end = (data.index(mark) for mark in (b"@@ -2,", b"@@ -27,", b"--- /dev/null"))
    return data[:first] + data[second:end] + data[first:second] + data[end:]


# What is done to the good patch; the line of the finding, as the text of that line in the bad patch; the sentence.
BAD: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "old count too high": (
        in_diff("@@ -2,7 +2,7 @@", "@@ -2,9 +2,7 @@"),
        "@@ -27",
        "more or fewer lines than its @@ line counts",
    ),
    "old count too low": (in_diff("@@ -2,7 +2,7 @@", "@@ -2,6 +2,7 @@"), " line_8", "more or fewer lines than its @@ line"),
    "both counts too low": (in_diff("@@ -2,7 +2,7 @@", "@@ -2,6 +2,6 @@"), "@@ -27", "the lines above belong to no hunk"),
    "counts too high at the end": (
        in_diff("@@ -1,2 +1,2 @@", "@@ -1,3 +1,3 @@"),
        "\\ No newline",
        "fewer lines than its @@ line",
    ),
    "CRLF throughout": (lambda data: data.replace(b"\n", b"\r\n"), "Description", "carriage return"),
    "one CR": (in_diff("+line_5 = 50\n", "+line_5 = 50\r\n"), "+line_5", "carriage return"),
    "not UTF-8": (lambda data: data.replace(b"line_5 = 50", b"line_5 = \xff50"), "+line_5", "not UTF-8"),
    "NUL byte": (in_diff("line_5 = 50", "line_5 = \0"), "+line_5", "NUL byte"),
    "upwards path": (renamed("sglang/new.py", "sglang/../../etc/passwd"), "+++ b/sglang/../", "leads out of the tree"),
    "absolute path": (in_diff("+++ b/sglang/new.py", "+++ /etc/passwd"), "+++ /etc", "does not begin with b/"),
    "absolute path after b": (in_diff("+++ b/sglang/new.py", "+++ b//etc/passwd"), "+++ b//etc", "leads out of the tree"),
    "outside the package": (renamed("sglang/new.py", "other/new.py"), "+++ b/other", "not under sglang/"),
    "only in the name": (renamed("sglang/new.py", "sglang-evil/new.py"), "+++ b/sglang-evil", "not under sglang/"),
    "dot in path": (renamed("sglang/new.py", "sglang/./new.py"), "+++ b/sglang/./", "not a plain path"),
    "doubled slash": (renamed("sglang/new.py", "sglang//new.py"), "+++ b/sglang//", "not a plain path"),
    "no prefix": (in_diff("--- a/sglang/long.py", "--- sglang/long.py"), "--- sglang", "does not begin with a/"),
    "git binary": (lambda data: data + b"GIT binary patch\nliteral 3\nKcmZ\n", "GIT binary", "binary change"),
    "binary differ": (lambda data: data + b"Binary files a/sglang/x and b/sglang/x differ\n", "Binary files", "binary change"),
    "git rename": (
        lambda data: (
            data + b"diff --git a/sglang/x b/sglang/y\nsimilarity index 100%\nrename from sglang/x\nrename to sglang/y\n"
        ),
        "rename from",
        "a rename cannot",
    ),
    "plain rename": (in_diff("+++ b/sglang/long.py", "+++ b/sglang/longer.py"), "--- a/sglang/long", "a rename cannot"),
    "git copy": (lambda data: data + b"copy from sglang/x\ncopy to sglang/y\n", "copy from", "a copy cannot"),
    "git mode": (
        lambda data: data + b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n",
        "old mode",
        "a mode change cannot",
    ),
    "git lines": (in_diff("--- a/sglang/long.py", "index 12ab..34cd 100644\n--- a/sglang/long.py"), "index", "git's extra lines"),
    "empty": (lambda data: b"", "", "the file is empty"),
    "no diff": (only_header, "", "has no diff"),
    "cut off": (lambda data: data[:-5], "\\ No newline", "the file is cut off"),
    "no hunk": (lambda data: data + b"--- a/sglang/short.py\n+++ b/sglang/short.py\n", "--- a/sglang/short", "has no hunk"),
    "text after the hunks": (lambda data: data + b"-- \n2.39.5\n", "-- ", "belongs to no hunk"),
    "blank line after the hunks": (lambda data: data + b"\n", "", "belongs to no hunk"),
    "text between files": (in_diff("--- /dev/null", "Only in b: x\n--- /dev/null"), "Only in", "belongs to no hunk"),
    "removal after the hunk": (in_diff("--- /dev/null", "-line_34 = 34\n--- /dev/null"), "-line_34", "belongs to no hunk"),
    "stripped context": (in_diff(" a = 1\n \n", " a = 1\n\n"), "", "an empty context line lost its leading space"),
    "timestamp": (in_diff("+++ b/sglang/new.py", "+++ b/sglang/new.py\t2026-01-01"), "+++ b/sglang/new.py", "belongs to no hunk"),
    "loose head": (in_diff("@@ -0,0 +1 @@", "@@ -0,0 +1,1 @@"), "@@ -0,0", "should be written '@@ -0,0 \\+1 @@'"),
    "other no-newline words": (in_diff("\\ No newline at end of file", "\\ No line end"), "\\ No line", "belongs to no hunk"),
    "no-newline mid-file": (
        in_diff("+line_5 = 50\n", "+line_5 = 50\n\\ No newline at end of file\n"),
        "@@ -2,",
        "before the file's last line",
    ),
    "stray no-newline": (
        in_diff("@@ -2,7 +2,7 @@\n", "@@ -2,7 +2,7 @@\n\\ No newline at end of file\n"),
        "@@ -2,",
        "belongs to no line",
    ),
    "file twice": (twice, "--- /dev/null", "is there twice"),
    "hunks out of order": (swapped_hunks, "@@ -2,", "before the end of the one above"),
    "hunks overlap": (in_diff("@@ -27,7 +27,7 @@", "@@ -8,7 +8,7 @@"), "@@ -8,", "before the end of the one above"),
    "hunk leads elsewhere": (in_diff("@@ -27,7 +27,7 @@", "@@ -27,7 +28,7 @@"), "@@ -27,", "do not lead there"),
    "hunk changes nothing": (
        in_diff("--- /dev/null", "@@ -36,2 +36,2 @@\n line_36 = 36\n line_37 = 37\n--- /dev/null"),
        "@@ -36,",
        "the hunk changes nothing",
    ),
    "hunk elsewhere": (in_diff("@@ -2,7 +2,7 @@", "@@ -3,7 +3,7 @@"), "@@ -3,", "1 lines from where it says"),
    "context of another file": (in_diff(" line_6 = 6", " line_6 = 7"), "@@ -2,", "does not apply to sglang/long.py; line 2 "),
    "no separator": (replaced("\n---\n", "\n"), "", "no line ---"),
    "missing fields": (
        lambda data: re.sub(rb"Why: .*\n .\n .*\n|Origin: .*\n", b"", data),
        "Description",
        "the header lacks Why, Origin",
    ),
    "fields out of order": (
        lambda data: re.sub(rb"(Origin: .*\n)(Forwarded: .*\n)", rb"\2\1", data),
        "Forwarded",
        "Forwarded stands where Origin belongs",
    ),
    "unknown field": (replaced("Origin:", "Author: me\nOrigin:"), "Author", "there is no field Author"),
    "repeated field": (replaced("Origin:", "Origin: me\nOrigin:"), "Origin: own", "a second time"),
    "empty field": (replaced("Origin: own work", "Origin:"), "Origin", "Origin is empty"),
    "odd forwarded": (replaced("Forwarded: no", "Forwarded: maybe"), "Forwarded", "`no`, `not-needed` or the address"),
    "space at the end": (replaced("Origin: own work", "Origin: own work "), "Origin", "white space at the end"),
    "other base": (replaced("sglang==0.5.11", "sglang==0.5.12"), "Base", "the series is for sglang==0.5.11"),
    "touches another file": (replaced("\n sglang/new.py", "\n sglang/newer.py"), "Touches", "sglang/new.py, sglang/newer.py"),
    "depends on a later one": (replaced("Depends: none", "Depends: 0002-later.patch"), "Depends", "no earlier patch"),
    "wrong pre-image": (
        lambda data: re.sub(rb"Pre-Image: [0-9a-f]{64} sglang/long", b"Pre-Image: " + b"0" * 64 + b" sglang/long", data),
        "Pre-Image: 0000",
        "Pre-Image is not that of sglang/long.py",
    ),
    "wrong post-image": (
        lambda data: re.sub(rb"Post-Image: [0-9a-f]{64} sglang/long", b"Post-Image: " + b"0" * 64 + b" sglang/long", data),
        "--- a/sglang/long.py",
        "sglang/long.py does not have the Post-Image",
    ),
    "pre-image of a new file": (
        replaced("Pre-Image: absent", f"Pre-Image: {'0' * 64}"),
        f"Pre-Image: {'0' * 64}",
        "the diff says otherwise",
    ),
    "images in another order": (
        lambda data: re.sub(rb"(Pre-Image: .*\nPost-Image: .*\n)(Pre-Image: .*\nPost-Image: .*\n)", rb"\2\1", data, count=1),
        "Pre-Image",
        "image 1 is of sglang/long.py, file 1 of the diff is sglang/blank.py",
    ),
    "half a pair": (lambda data: re.sub(rb"Post-Image: .*new.py\n", b"", data), "Pre-Image: absent", "images come in pairs"),
    "short hash": (
        lambda data: re.sub(rb"Post-Image: [0-9a-f]", b"Post-Image: ", data, count=1),
        "Post-Image",
        "a sha256 in hex",
    ),
    "word of the header": (replaced("It really does.", "It really did."), "Description", "lines 1 to 22, the header"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_sentence_with_file_and_line_and_nothing_changed(world: World, case: str) -> None:
    change, at, sentence = BAD[case]
    world.series(("bad", GOOD))
    assert world.sentences() == []
    good = (world.folder / NAME).read_bytes()
    bad = change(good)
    assert bad != good
    (world.folder / NAME).write_bytes(bad)
    before = fingerprint(world.root), fingerprint(world.site)

    found = world.sentences()

    assert len(found) == 1, found
    match = re.match(rf"{re.escape(NAME)}:(\d+|None): (.*)", found[0])
    assert match, found
    assert re.search(sentence, match[2]), found
    if at:
        line = bad.split(b"\n")[int(match[1]) - 1].decode("utf-8", "replace")
        assert line.startswith(at), (found, line)
    # Applied all the same, it is either refused likewise or, where only words of the header differ, does what it did.
    try:
        report = apply.apply(series.load(where=world.folder), world.site)
    except PatchError as error:
        assert error.file == NAME
        assert fingerprint(world.site) == before[1]
    else:
        if not report.ok:
            assert fingerprint(world.site) == before[1]
            return
        assert {path: (world.site / path).read_bytes() for path in GOOD} == GOOD
        apply.reverse(series.load(where=world.folder), world.site)
        assert fingerprint(world.site) == before[1]


def test_a_new_file_that_exists_is_named_with_the_patch_and_its_line(world: World) -> None:
    world.series(("new", {"sglang/new.py": b"new = 1\n"}))
    (world.pristine / "sglang/new.py").write_bytes(b"another = 1\n")
    before = fingerprint(world.pristine)
    (sentence,) = world.sentences()
    assert re.match(r"0001-new\.patch:\d+: creates sglang/new\.py, which is there already", sentence)
    assert fingerprint(world.pristine) == before


def test_unlisted_missing_repeated_and_misnamed_patches_are_all_said(world: World) -> None:
    world.series(("one", {"sglang/short.py": b"one = 2\n"}))
    (world.folder / "0009-stray.patch").write_text("x\n")
    world.list("0001-one.patch", "0002-gone.patch", "Fix.patch")
    assert [sentence.partition(": ")[0] for sentence in world.sentences()][:3] == [
        "series:2",
        "series:3",
        "0009-stray.patch:None",
    ]
    world.list("0001-one.patch", "0001-one.patch")
    assert world.sentences() == ["series:2: lists 0001-one.patch a second time"]


def test_a_patch_that_stands_on_a_bad_one_waits_and_says_no_more(world: World) -> None:
    world.series(
        ("one", {"sglang/short.py": b"one = 3\n"}),
        ("two", {"sglang/short.py": b"one = 4\n"}),
        ("three", {"sglang/long.py": LONG[:50]}),
    )
    path = world.folder / "0001-one.patch"
    path.write_bytes(path.read_bytes().replace(b"+one = 3", b"+one = 5"))
    verdicts = world.check().verdicts
    assert [(len(verdict.findings), verdict.waits_for) for verdict in verdicts] == [(1, None), (0, "0001-one.patch"), (0, None)]


def test_a_patched_file_that_does_not_compile_is_named_with_its_line(world: World) -> None:
    world.series(("one", {"sglang/short.py": b"one = 1\ntwo = = 2\n"}))
    assert world.sentences() == ["sglang/short.py:2: does not compile after the series: invalid syntax"]
    assert not list(world.root.rglob("*.pyc"))


def test_a_number_out_of_place_is_said(world: World) -> None:
    world.series(("one", {"sglang/short.py": b"one = 3\n"}))
    (world.folder / "0001-one.patch").rename(world.folder / "0002-one.patch")
    (world.folder / "SHA256SUMS").unlink()
    world.list("0002-one.patch")
    assert "stands in place 1 of the series" in world.sentences()[0]


def test_any_changed_byte_of_a_patch_is_noticed_with_its_line(world: World) -> None:
    world.series(("bad", GOOD))
    good = (world.folder / NAME).read_bytes()
    for at in range(0, len(good), 3):
        (world.folder / NAME).write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        found = world.sentences()
        # A byte of the diff may leave a file that does not compile; then that file is named.
        assert found and re.match(r"(0001-bad\.patch|sglang/\w+\.py):\d+: ", found[0]), (at, found)


def test_a_patch_that_refresh_would_write_otherwise_is_named_with_the_line(world: World) -> None:
    """Same effect, right sums, but the words beside `@@` or the choice of hunks are somebody else's."""
    old, new = PRISTINE["sglang/deep/er/mod.py"], b"def f():\n    return 2\n"
    world.series(("one", {"sglang/deep/er/mod.py": new}))
    path = world.folder / "0001-one.patch"
    path.write_bytes(path.read_bytes().replace(b"@@ -1,2 +1,2 @@\n", b"@@ -1,2 +1,2 @@ def g\n"))
    (world.folder / "SHA256SUMS").write_bytes(refresh.sums(series.load(where=world.folder).patches))
    line = path.read_bytes().split(b"\n").index(b"@@ -1,2 +1,2 @@ def g") + 1
    assert world.sentences()[0].startswith(f"0001-one.patch:{line}: is not written as `make refresh` writes it")
    assert apply.judge(series.load(where=world.folder).chains, lambda _: old).changes == {"sglang/deep/er/mod.py": new}
