"""A diff that is read here means one thing only: whatever unidiff passes over in silence is refused with its line.

unidiff does the parsing. It was not made to refuse, so a diff that it has read is written out again and must be the
input, byte for byte; that one comparison finds text between hunks, lost spaces, timestamps, odd numbers, everything that
was skipped. What has a better sentence of its own (paths, renames, modes, binary changes, order of hunks) is said first.

    files = parse(text, file="0001-rope-theta.patch", first_line=15)
    assert render(files) == text
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from unidiff import PatchedFile, PatchSet
from unidiff.errors import UnidiffParseError

from patches.errors import PatchError

NULL = "/dev/null"
PACKAGE = "sglang/"
NO_NEWLINE = "\\ No newline at end of file"


class Kind(Enum):
    """What a diff does to its file."""

    MODIFY = "modify"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True)
class Line:
    """One line of a hunk: `sign` is a space, `+` or `-`; `text` ends in a newline unless the file's last line has none."""

    sign: str
    text: str


@dataclass(frozen=True)
class Hunk:
    """A run of lines; starts are 1-based as in the `@@` line (and, with length 0, the line before)."""

    old_start: int
    new_start: int
    lines: tuple[Line, ...]
    section: str = ""
    #: Line of `@@` in the patch, 1-based; 0 when the hunk was never in a file.
    line: int = field(default=0, compare=False)

    @property
    def old(self) -> list[bytes]:
        """The lines that must be there."""
        return [line.text.encode() for line in self.lines if line.sign != "+"]

    @property
    def new(self) -> list[bytes]:
        """The lines that will be there."""
        return [line.text.encode() for line in self.lines if line.sign != "-"]

    @property
    def head(self) -> str:
        """The `@@` line, without a newline."""
        old, new = (
            f"{start}" if length == 1 else f"{start},{length}"
            for start, length in ((self.old_start, len(self.old)), (self.new_start, len(self.new)))
        )
        return f"@@ -{old} +{new} @@" + (f" {self.section}" if self.section else "")

    def reversed(self) -> Hunk:
        """The hunk that takes this one back; removed lines come before added ones again."""
        swapped = {"+": "-", "-": "+", " ": " "}
        lines: list[Line] = []
        run: list[Line] = []
        for line in (*self.lines, Line(" ", "")):
            if line.sign == " ":
                lines += sorted(run, key=lambda item: item.sign == "+")
                lines.append(line)
                run = []
            else:
                run.append(Line(swapped[line.sign], line.text))
        return replace(self, old_start=self.new_start, new_start=self.old_start, lines=tuple(lines[:-1]))


@dataclass(frozen=True)
class FileDiff:
    """All that one patch does to one file; `path` is relative to the import root."""

    path: str
    kind: Kind
    hunks: tuple[Hunk, ...]
    #: Line of `---` in the patch, 1-based; 0 when the diff was never in a file.
    line: int = field(default=0, compare=False)

    @property
    def added(self) -> int:
        """Number of lines added."""
        return sum(line.sign == "+" for hunk in self.hunks for line in hunk.lines)

    @property
    def removed(self) -> int:
        """Number of lines removed."""
        return sum(line.sign == "-" for hunk in self.hunks for line in hunk.lines)

    def reversed(self) -> FileDiff:
        """The diff that takes this one back."""
        kind = {Kind.CREATE: Kind.DELETE, Kind.DELETE: Kind.CREATE}.get(self.kind, self.kind)
        return replace(self, kind=kind, hunks=tuple(hunk.reversed() for hunk in self.hunks))


def render(files: Sequence[FileDiff]) -> str:
    """The diffs as text: the only form that `parse` takes."""
    text: list[str] = []
    for item in files:
        text.append(f"--- {NULL if item.kind is Kind.CREATE else 'a/' + item.path}\n")
        text.append(f"+++ {NULL if item.kind is Kind.DELETE else 'b/' + item.path}\n")
        for hunk in item.hunks:
            text.append(f"{hunk.head}\n")
            for line in hunk.lines:
                text.append(f"{line.sign}{line.text}")
                if not line.text.endswith("\n"):
                    text.append(f"\n{NO_NEWLINE}\n")
    return "".join(text)


def parse(text: str, *, file: str, first_line: int = 1) -> tuple[FileDiff, ...]:
    """Parse unified diffs; `first_line` is the line of the patch at which `text` begins.

    Raises:
        PatchError: with the line, for anything that is not exactly what `render` writes.
    """
    lines = text.split("\n")[:-1]
    _refuse_git(lines, file=file, first_line=first_line)
    reader = _Reader(lines)
    try:
        found = PatchSet(reader)
    except UnidiffParseError as error:
        reason = _explain(str(error).strip(), lines, reader.line, first_line)
        raise PatchError(file, first_line + reader.line - 1, reason) from None
    if not found:
        raise PatchError(file, first_line, "the patch has no diff: it would change nothing")

    files = tuple(_convert(item, file=file, before=first_line - 1) for item in found)
    seen: set[str] = set()
    for item in files:
        if item.path in seen:
            raise PatchError(file, item.line, f"{item.path} is there twice: one patch has one diff a file")
        seen.add(item.path)
    _compare(render(files).split("\n")[:-1], lines, file=file, first_line=first_line)
    for item in files:
        _check_hunks(item, file=file)
    return files


class _Reader:
    """Hands lines to unidiff and remembers how far it came, since its errors carry no line."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self.line = 1

    def __iter__(self) -> Iterator[str]:
        for self.line, line in enumerate(self._lines, 1):  # noqa: B020 - the attribute is the point
            yield line + "\n"


def _explain(reason: str, lines: Sequence[str], line: int, first_line: int) -> str:
    """unidiff's reason as a sentence that says where to look; `line` is where it stopped, counted in `lines`."""
    if reason.startswith("Unexpected hunk"):
        return "the lines above belong to no hunk: the hunk further up counts too few"
    head = next((at for at in range(line - 1, 0, -1) if lines[at - 1].startswith("@@")), None)
    if head and reason.startswith(("Hunk is", "Hunk diff line expected")):
        return f"the hunk of line {first_line + head - 1} has more or fewer lines than its @@ line counts"
    return f"this is no unified diff: {reason}"


#: Lines of git's extended headers, worst first. A hunk's lines begin with a sign, so none of them can be one of these.
_GIT = (
    (("GIT binary patch", "Binary files "), "a binary change cannot be part of the series"),
    (("rename from ", "rename to "), "a rename cannot be part of the series: delete the file and create the other"),
    (("copy from ", "copy to "), "a copy cannot be part of the series: create the file"),
    (("old mode ", "new mode "), "a mode change cannot be part of the series"),
    (
        ("new file mode ", "deleted file mode ", "similarity index ", "diff ", "index "),
        "the series has plain unified diffs, without git's extra lines: let `make refresh` write them",
    ),
)


def _refuse_git(lines: Sequence[str], *, file: str, first_line: int) -> None:
    for starts, reason in _GIT:
        for number, line in enumerate(lines, first_line):
            if line.startswith(starts):
                raise PatchError(file, number, reason)


def _convert(item: PatchedFile, *, file: str, before: int) -> FileDiff:
    """unidiff's file as ours; `before` is the number of lines of the patch above the diffs."""
    at = before + (item.diff_line_no or 2) - 1
    kind = Kind.CREATE if item.source_file == NULL else Kind.DELETE if item.target_file == NULL else Kind.MODIFY
    if item.source_file == item.target_file == NULL:
        raise PatchError(file, at, f"both sides are {NULL}")
    paths = {
        _checked_path(name, prefix, file=file, line=at + offset)
        for offset, (name, prefix) in enumerate(((item.source_file, "a/"), (item.target_file, "b/")))
        if name != NULL
    }
    if len(paths) > 1:
        raise PatchError(file, at, "the two sides name different files: a rename cannot be part of the series")
    if not item:
        raise PatchError(file, at, "the file has no hunk: the diff would change nothing")

    hunks: list[Hunk] = []
    for hunk in item:
        lines: list[Line] = []
        head = before + (hunk[0].diff_line_no or 2) - 1 if hunk else at
        for line in hunk:
            if line.line_type == "\\":
                if not lines or not lines[-1].text.endswith("\n"):
                    raise PatchError(file, head, "the hunk has a `No newline` mark that belongs to no line")
                lines[-1] = replace(lines[-1], text=lines[-1].text[:-1])
            elif line.line_type:
                lines.append(Line(line.line_type, line.value))
        hunks.append(Hunk(hunk.source_start, hunk.target_start, tuple(lines), hunk.section_header, head))
    return FileDiff(paths.pop(), kind, tuple(hunks), at)


def _checked_path(name: str, prefix: str, *, file: str, line: int) -> str:
    if not name.startswith(prefix):
        raise PatchError(file, line, f"{name!r} does not begin with {prefix}")
    path = name.removeprefix(prefix)
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise PatchError(file, line, f"{path!r} leads out of the tree")
    if not path.startswith(PACKAGE):
        raise PatchError(file, line, f"{path!r} is not under {PACKAGE}")
    if "" in parts or "." in parts or "\\" in path or not path.isprintable():
        raise PatchError(file, line, f"{path!r} is not a plain path")
    return path


def _compare(expected: Sequence[str], lines: Sequence[str], *, file: str, first_line: int) -> None:
    """Refuse the first line that unidiff read otherwise than it is written, or did not read at all."""
    for offset in range(max(len(expected), len(lines))):
        want = expected[offset] if offset < len(expected) else None
        have = lines[offset] if offset < len(lines) else None
        if want == have:
            continue
        number = first_line + offset
        if have is None:
            raise PatchError(file, number - 1, f"the diff ends where {want!r} should follow")
        if want is not None and have.startswith("@@"):
            raise PatchError(file, number, f"the hunk's head should be written {want!r}")
        if want == " ":
            raise PatchError(file, number, "an empty context line lost its leading space")
        raise PatchError(file, number, f"{have!r} belongs to no hunk")


def _check_hunks(item: FileDiff, *, file: str) -> None:
    """Order, positions and ends of a file's hunks."""
    delta = 0
    end = 0  # 0-based, in the old file
    for number, hunk in enumerate(item.hunks, 1):
        signs = {line.sign for line in hunk.lines}
        if signs <= {" "}:
            raise PatchError(file, hunk.line, "the hunk changes nothing")
        start = position(hunk.old_start, len(hunk.old))
        if start < end or min(start, position(hunk.new_start, len(hunk.new))) < 0:
            raise PatchError(
                file, hunk.line, f"hunk {number} begins at line {hunk.old_start}, before the end of the one above it"
            )
        if position(hunk.new_start, len(hunk.new)) != start + delta:
            raise PatchError(
                file, hunk.line, f"hunk {number} says new line {hunk.new_start}, the hunks above it do not lead there"
            )
        delta += len(hunk.new) - len(hunk.old)
        end = start + len(hunk.old)
        for side in (hunk.old, hunk.new):
            last = number == len(item.hunks)
            if any(not line.endswith(b"\n") and not (last and at == len(side)) for at, line in enumerate(side, 1)):
                raise PatchError(file, hunk.line, f"hunk {number} has a `No newline` mark before the file's last line")
    if item.kind is not Kind.MODIFY:
        (hunk, *more) = item.hunks
        sign, start = ("+", hunk.old_start) if item.kind is Kind.CREATE else ("-", hunk.new_start)
        if more or start != 0 or {line.sign for line in hunk.lines} != {sign}:
            raise PatchError(file, hunk.line, f"a diff that {item.kind.value}s a file is one hunk of {sign} lines only")


def position(start: int, length: int) -> int:
    """Index (0-based) of a hunk's first line; a hunk of no lines counts from the line before it."""
    return start - 1 if length else start
