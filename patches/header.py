"""A header is complete and in order, and what it says is formatted in one way only.

A patch begins with these fields, in this order, in the manner of Debian's DEP-3 (a longer value goes on in lines that
begin with one space, ` .` stands for an empty line), then with one pair of images a file, then with a line `---`:

    Description: Read the drafter's rope_theta
     The drafter's own configuration carries it, the model class never looked at it.
    Why: Long contexts draft with the wrong rotary base, and the accept length falls.
    Base: sglang==0.5.11
    Touches: sglang/srt/models/dflash.py
    Depends: none
    Origin: own work
    Forwarded: no
    Retire-When: the pinned release reads rope_theta in models/dflash.py
    Pre-Image: 3b0c...64 hex digits sglang/srt/models/dflash.py
    Post-Image: 90aa...64 hex digits sglang/srt/models/dflash.py
    ---

`Touches` holds one path a line, `Depends` file names of earlier patches with commas between (or `none`), `Forwarded`
is `no`, `not-needed` or an address, and an image of a file that is not there is `absent`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from patches.errors import PatchError

#: The fields, in their order.
FIELDS = ("Description", "Why", "Base", "Touches", "Depends", "Origin", "Forwarded", "Retire-When")
#: The fields that a person writes; refresh fills in the others.
WRITTEN = ("Description", "Why", "Depends", "Origin", "Forwarded", "Retire-When")
ABSENT = "absent"
NONE = "none"

_FIELD = re.compile(r"([A-Z][A-Za-z]*(?:-[A-Z][A-Za-z]*)*):(?: (.*))?")
_IMAGE = re.compile(rf"([0-9a-f]{{64}}|{ABSENT}) (\S(?:.*\S)?)")
_FORWARDED = re.compile(r"no|not-needed|https?://\S+")


@dataclass(frozen=True)
class Image:
    """One file before and after the patch: sha256 in hex, None where the file is not there."""

    path: str
    pre: str | None
    post: str | None
    #: Line of `Pre-Image` in the patch; `Post-Image` is the line below. 0 when the header was never in a file.
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Header:
    """What a patch says about itself; values are text with newlines, without the folding."""

    description: str
    why: str
    base: str
    touches: tuple[str, ...]
    #: File names of earlier patches.
    depends: tuple[str, ...]
    origin: str
    forwarded: str
    retire_when: str
    images: tuple[Image, ...]
    #: Line of each field in the patch (1-based); empty when the header was never in a file.
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def subject(self) -> str:
        """The description's first line."""
        return self.description.partition("\n")[0]


@dataclass(frozen=True)
class Field:
    """One field as written: name, unfolded value, and its line (1-based)."""

    name: str
    value: str
    line: int


def read_fields(lines: Sequence[str], *, file: str, first_line: int = 1) -> list[Field]:
    """Read folded fields; `lines` carry no newlines. Knows nothing of which fields there should be."""
    found: list[tuple[str, list[str], int]] = []
    for number, line in enumerate(lines, first_line):
        if line != line.rstrip():
            raise PatchError(file, number, "has white space at the end of a header line: remove it")
        if line.startswith(" "):
            if not found:
                raise PatchError(file, number, "goes on with a field before any field began")
            found[-1][1].append("" if line == " ." else line[1:])
            continue
        match = _FIELD.fullmatch(line)
        if not match:
            raise PatchError(
                file, number, f"{line!r} is no header line: write `Name: text`, or begin with a space to go on with a field"
            )
        found.append((match[1], [match[2] or ""], number))
    for name, parts, number in found:
        blank = [i for i, part in enumerate(parts) if not part]
        if 0 in blank or len(parts) - 1 in blank or any(b - a == 1 for a, b in pairwise(blank)):
            raise PatchError(file, number, f"{name} is empty, or has an empty line where it should have text")
        for offset, part in enumerate(parts):
            if not part.isprintable():
                raise PatchError(file, number + offset, f"{name} has a character that cannot be printed")
    return [Field(name, "\n".join(parts), number) for name, parts, number in found]


def fold(name: str, value: str) -> str:
    """The inverse of `read_fields` for one field, newline included."""
    first, *rest = value.split("\n")
    return "".join([f"{name}: {first}\n", *(f" {line or '.'}\n" for line in rest)])


def parse(lines: Sequence[str], *, file: str) -> Header:
    """Parse the lines above `---`.

    Raises:
        PatchError: a field is missing, unknown, twice there, out of order or malformed; all the missing ones are named.
    """
    fields = read_fields(lines, file=file)
    plain = [item for item in fields if item.name not in ("Pre-Image", "Post-Image")]
    check_names(plain, FIELDS, file=file)
    for item, expected in zip(plain, FIELDS, strict=True):
        if item.name != expected:
            raise PatchError(file, item.line, f"{item.name} stands where {expected} belongs; the order is {', '.join(FIELDS)}")
    if fields[: len(FIELDS)] != plain:
        raise PatchError(file, plain[-1].line, "the images come after all other fields")

    at = {item.name: item for item in plain}
    values = {name: item.value for name, item in at.items()}
    check_text(at, file=file)
    depends = parse_depends(at["Depends"], file=file)
    return Header(
        description=values["Description"],
        why=values["Why"],
        base=values["Base"],
        touches=tuple(values["Touches"].split("\n")),
        depends=depends,
        origin=values["Origin"],
        forwarded=values["Forwarded"],
        retire_when=values["Retire-When"],
        images=_parse_images(fields[len(FIELDS) :], file=file),
        lines={name: item.line for name, item in at.items()},
    )


def check_names(fields: Sequence[Field], names: Sequence[str], *, file: str, hint: str = "") -> None:
    """Refuse unknown, repeated and missing fields; the missing ones all at once."""
    seen: set[str] = set()
    for item in fields:
        if item.name not in names:
            raise PatchError(file, item.line, f"there is no field {item.name}; the fields are {', '.join(names)}")
        if item.name in seen:
            raise PatchError(file, item.line, f"{item.name} is there a second time")
        seen.add(item.name)
    if missing := [name for name in names if name not in seen]:
        raise PatchError(file, 1 if file.endswith(".patch") else None, f"the header lacks {', '.join(missing)}{hint}")


def check_text(fields: Mapping[str, Field], *, file: str) -> None:
    """Refuse what would not survive a commit message, and a `Forwarded` that says nothing."""
    description = fields["Description"]
    for offset, line in enumerate(description.value.split("\n")):
        if line.startswith("#") or line.partition(":")[0] in (*FIELDS, "Patch"):
            raise PatchError(
                file, description.line + offset, "a description's line may not begin with # or like a field: word it otherwise"
            )
    if "\n" in description.value and description.value.split("\n")[1] == "":
        raise PatchError(file, description.line + 1, "the description's text follows its first line without an empty line")
    if not _FORWARDED.fullmatch(fields["Forwarded"].value):
        raise PatchError(file, fields["Forwarded"].line, "Forwarded is `no`, `not-needed` or the address it was sent to")


def parse_depends(item: Field, *, file: str) -> tuple[str, ...]:
    """Names out of `Depends`, in their order."""
    if item.value == NONE:
        return ()
    names = tuple(item.value.split(", "))
    if any(not name or name == NONE or not re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names):
        raise PatchError(file, item.line, f"Depends is `{NONE}`, or names of earlier patches with `, ` between them")
    if len(set(names)) != len(names):
        raise PatchError(file, item.line, "Depends names a patch twice")
    return names


def _parse_images(fields: Sequence[Field], *, file: str) -> tuple[Image, ...]:
    images: list[Image] = []
    for index in range(0, len(fields), 2):
        pair = fields[index : index + 2]
        if [item.name for item in pair] != ["Pre-Image", "Post-Image"]:
            raise PatchError(file, pair[0].line, "images come in pairs: a Pre-Image, then the Post-Image of the same file")
        parts = [_IMAGE.fullmatch(item.value) for item in pair]
        for item, part in zip(pair, parts, strict=True):
            if not part:
                raise PatchError(file, item.line, f"{item.name} is a sha256 in hex (or `{ABSENT}`), a space and a path")
        (pre, path), (post, post_path) = (part.groups() for part in parts if part)
        if path != post_path:
            raise PatchError(file, pair[1].line, f"Post-Image is of {post_path}, the Pre-Image above it of {path}")
        images.append(Image(path, None if pre == ABSENT else pre, None if post == ABSENT else post, pair[0].line))
    return tuple(images)


def render(header: Header) -> str:
    """The header's text, from `Description` to the last image; `---` is not part of it."""
    values = (
        header.description,
        header.why,
        header.base,
        "\n".join(header.touches),
        ", ".join(header.depends) or NONE,
        header.origin,
        header.forwarded,
        header.retire_when,
    )
    text = "".join(fold(name, value) for name, value in zip(FIELDS, values, strict=True))
    for image in header.images:
        text += f"Pre-Image: {image.pre or ABSENT} {image.path}\nPost-Image: {image.post or ABSENT} {image.path}\n"
    return text
