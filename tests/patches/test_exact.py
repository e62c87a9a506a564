"""Diffs and their application, on random texts: there and back to the byte, and no damage that means something else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from patches import apply, diff, differ, exact, patch
from patches.diff import Kind
from patches.errors import PatchError
from patches.series import Series
from tests.patches.world import LONG, make

# Few different lines, so that anchors, repeats and ties are common; some would mislead a careless parser.
LINES = st.sampled_from(
    [
        b"",
        b"a",
        b"b",
        b"    c",
        b"-- x",
        b"++ x",
        b"@@ -1 +1 @@",
        b"\\ No newline at end of file",
        b"\x0c",
        "é\u2028x".encode(),
        b"a ",
    ]
)
TEXTS = st.builds(
    lambda lines, end: b"\n".join(lines) + (b"\n" if end and lines else b""), st.lists(LINES, max_size=30), st.booleans()
)


def parts(old: bytes | None, new: bytes | None) -> diff.FileDiff:
    """The diff, through its text."""
    made = differ.file_diff("sglang/x.py", old, new)
    text = diff.render([made])
    (parsed,) = diff.parse(text, file="0001-x.patch")
    assert parsed == made
    return parsed


@given(TEXTS, TEXTS)
@settings(max_examples=400, deadline=None)
def test_a_diff_leads_there_and_back(old: bytes, new: bytes) -> None:
    if old == new:
        return
    there = parts(old, new)
    result = exact.apply(there, old)
    assert result.exact and result.data == new
    back = exact.apply(there.reversed(), new)
    assert back.exact and back.data == old
    assert there.reversed().reversed() == there
    for hunk in there.reversed().hunks:
        signs = "".join(line.sign for line in hunk.lines)
        assert "+-" not in signs  # As a diff is written: what goes, then what comes.


@given(TEXTS.filter(bool))
@settings(deadline=None)
def test_whole_files_come_and_go(text: bytes) -> None:
    create, delete = parts(None, text), parts(text, None)
    assert (create.kind, delete.kind) == (Kind.CREATE, Kind.DELETE)
    assert exact.apply(create, b"").data == text
    assert exact.apply(delete, text).data == b""
    assert diff.render([create.reversed()]) == diff.render([delete])


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_on_another_file_a_hunk_goes_to_its_own_lines_or_nowhere(old: bytes, new: bytes, other: bytes) -> None:
    if old == new:
        return
    result = exact.apply(parts(old, new), other)
    if not result.misses:
        # What was applied can be taken back to the same bytes: no line was guessed.
        removed = sum(len(hunk.old) for hunk in parts(old, new).hunks)
        assert removed <= len(exact.split(other))
        assert len(exact.split(result.data)) - len(exact.split(other)) == len(exact.split(new)) - len(exact.split(old))


OLD = {"sglang/long.py": LONG, "sglang/no_newline.py": b"first = 1\nlast = 2", "sglang/new.py": None}
NEW = {"sglang/long.py": LONG.replace(b"5", b"6"), "sglang/no_newline.py": b"first = 2\nlast = 2", "sglang/new.py": b"n = 1\n"}
GOOD = make("0001-good.patch", OLD, NEW)


@given(st.integers(0, len(GOOD.data) - 1), st.one_of(st.integers(0, 255), st.none()), st.booleans())
@settings(max_examples=1500, deadline=None)
def test_a_damaged_byte_means_a_refusal_or_the_same_effect(at: int, byte: int | None, insert: bool) -> None:
    """A byte replaced, removed (None) or inserted: never a patch that does something else."""
    piece = b"" if byte is None else bytes([byte])
    damaged = GOOD.data[:at] + piece + GOOD.data[at if insert else at + 1 :]
    try:
        read = patch.parse(GOOD.name, damaged)
        result = apply.judge(Series("0.5.11", (read,)).chains, OLD.get)
    except PatchError as error:
        assert error.file == GOOD.name
        return
    if result.ok:
        assert result.changes == NEW


def test_a_moved_hunk_is_reported_with_its_offset() -> None:
    made = parts(LONG, LONG.replace(b"line_20 = 20\n", b""))
    result = exact.apply(made, b"# above\n# above\n" + LONG)
    assert [shift.offset for shift in result.shifts] == [2] and not result.misses


def test_hunks_keep_their_order_also_when_their_lines_do_not() -> None:
    """The first hunk's lines are now below the second's: the second has no place, though its lines are where it says."""
    made = parts(LONG, LONG.replace(b"line_2 = 2\n", b"two = 2\n").replace(b"line_30 = 30\n", b"thirty = 30\n"))
    lines = exact.split(LONG)
    other = b"".join([b"# above\n"] * 5 + lines[5:] + lines[:5])
    result = exact.apply(made, other)
    assert [shift.offset for shift in result.shifts] == [40]
    assert [miss.hunk.old_start for miss in result.misses] == [27]
    assert result.data == other.replace(b"line_2 = 2\n", b"two = 2\n")


def test_the_nearest_place_is_named_with_expected_and_found() -> None:
    made = parts(LONG, LONG.replace(b"line_20 = 20\n", b""))
    drifted = b"# above\n" * 7 + LONG.replace(b"line_20 = 20\n", b"line_20 = 21\n")
    (miss,) = exact.apply(made, drifted).misses
    assert (miss.places, miss.nearest) == (0, 24)
    assert "-line_20 = 20" in miss.diff and "+line_20 = 21" in miss.diff and " line_19 = 19" in miss.diff


def test_an_added_function_is_shown_whole() -> None:
    """The block begins at its own first line, not at the last one of the function above."""
    old = b"def a():\n    return 1\n\n\ndef c():\n    return 1\n"
    new = b"def a():\n    return 1\n\n\ndef b():\n    return 1\n\n\ndef c():\n    return 1\n"
    (hunk,) = parts(old, new).hunks
    assert [line.text for line in hunk.lines if line.sign == "+"] == ["def b():\n", "    return 1\n", "\n", "\n"]


def test_a_hunk_says_where_it_is() -> None:
    old = b"class A:\n" + b"".join(b"    x%d = 1\n" % n for n in range(9)) + b"    last = 1\n"
    (hunk,) = parts(old, old.replace(b"last = 1", b"last = 2")).hunks
    assert hunk.head == "@@ -8,4 +8,4 @@ class A:"


def test_what_a_diff_cannot_say_is_refused() -> None:
    for old, new, reason in (
        (b"a\n", b"a\n", "nothing is changed"),
        (None, b"", "empty file"),
        (b"\xff\n", b"a\n", "old file is not UTF-8"),
        (b"a\n", b"a\0\n", "NUL"),
        (b"a\r\n", b"b\r\n", "CRLF"),
    ):
        try:
            differ.file_diff("sglang/x.py", old, new)
        except ValueError as error:
            assert reason in str(error)
        else:
            raise AssertionError(reason)


def test_a_large_file_is_diffed_by_its_anchors() -> None:
    """Long, mostly unlike, with repeated lines: the result still is exact."""
    old = b"".join(b"v%d\nsame\n" % n for n in range(3000))
    new = b"".join(b"w%d\nsame\n" % n if n % 3 else b"v%d\nsame\n" % n for n in range(3000))
    made = differ.file_diff("sglang/x.py", old, new)
    assert exact.apply(made, old).data == new and made.added == 2000
