"""A patch that was read is whole: text in UTF-8 with LF, a complete header, and diffs of exactly the files it names.

patch = parse("0001-rope-theta.patch", data)
assert render(patch.header, patch.files) == data
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from patches import diff, header
from patches.diff import FileDiff
from patches.errors import PatchError
from patches.header import Header

SEPARATOR = "---"
_NAME = re.compile(r"(\d{4})-([a-z0-9]+(?:-[a-z0-9]+)*)\.patch")


@dataclass(frozen=True)
class Patch:
    """One patch of the series; `name` is its file name, `data` the file's bytes."""

    name: str
    header: Header
    files: tuple[FileDiff, ...]
    data: bytes

    @property
    def slug(self) -> str:
        """The name without number and ending: what stays when patches change places."""
        return split_name(self.name)[1]


def split_name(name: str) -> tuple[int, str]:
    """Number and slug of a patch's file name.

    Raises:
        PatchError: the name is not `NNNN-words-with-hyphens.patch`.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise PatchError(name, None, "a patch is named NNNN-words-with-hyphens.patch, in lower case")
    return int(match[1]), match[2]


def parse(name: str, data: bytes) -> Patch:
    """Read a patch; see `patches.header` and `patches.diff` for the two halves.

    Raises:
        PatchError: with the line, for whatever is not exactly as it should be.
    """
    split_name(name)
    text = _text(name, data)
    lines = text.split("\n")[:-1]
    if SEPARATOR not in lines:
        diff_line = next((number for number, line in enumerate(lines, 1) if line.startswith("--- ")), len(lines))
        raise PatchError(name, diff_line, f"there is no line {SEPARATOR} between header and diff")
    end = lines.index(SEPARATOR)
    head = header.parse(lines[:end], file=name)
    files = diff.parse("".join(f"{line}\n" for line in lines[end + 1 :]), file=name, first_line=end + 2)

    paths = tuple(item.path for item in files)
    if head.touches != paths:
        odd = sorted(set(head.touches) ^ set(paths))
        reason = (
            f"Touches and the diff differ in {', '.join(odd)}" if odd else "Touches has the files in another order than the diff"
        )
        raise PatchError(name, head.lines["Touches"], reason)
    for number, (path, image) in enumerate(zip_longest(paths, head.images)):
        if image is None or image.path != path:
            line = image.line if image else end + 1
            have = f"of {image.path}" if image else "missing"
            reason = f"image {number + 1} is {have}, file {number + 1} of the diff is {path or 'not there'}"
            raise PatchError(name, line, reason)
    for image, item in zip(head.images, files, strict=True):
        _check_image(name, image, item)
    return Patch(name, head, files, data)


def render(head: Header, files: tuple[FileDiff, ...]) -> bytes:
    """The patch's bytes: the only form that `parse` takes."""
    return f"{header.render(head)}{SEPARATOR}\n{diff.render(files)}".encode()


def _check_image(name: str, image: header.Image, item: FileDiff) -> None:
    for sha, gone, line, word in (
        (image.pre, item.kind is diff.Kind.CREATE, image.line, "Pre-Image"),
        (image.post, item.kind is diff.Kind.DELETE, image.line + 1, "Post-Image"),
    ):
        if (sha is None) != gone:
            raise PatchError(
                name, line, f"{word} says that {item.path} is {'' if sha is None else 'not '}absent, the diff says otherwise"
            )


def _text(name: str, data: bytes) -> str:
    def line(at: int) -> int:
        return data.count(b"\n", 0, at) + 1

    if (at := data.find(b"\r")) >= 0:
        raise PatchError(name, line(at), "has a carriage return: patches have LF line ends only")
    if (at := data.find(b"\0")) >= 0:
        raise PatchError(name, line(at), "has a NUL byte: a binary change cannot be part of the series")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PatchError(name, line(error.start), "is not UTF-8") from None
    if not text.endswith("\n"):
        raise PatchError(
            name, line(len(data)), "the last line has no newline: the file is cut off" if text else "the file is empty"
        )
    return text
