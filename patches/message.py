"""A header and a commit message are the same words: one becomes the other and back without a byte of difference.

    Read the drafter's rope_theta

    The drafter's own configuration carries it, the model class never looked at it.

    Why: Long contexts draft with the wrong rotary base, and the accept length falls.
    Depends: none
    Origin: own work
    Forwarded: no
    Retire-When: the pinned release reads rope_theta in models/dflash.py
    Patch: rope-theta

Subject and text are the Description; a field goes on in lines that begin with a space. `Patch` is the patch's name without
number and ending; without it the name is made from the subject. `Depends` names patches with or without numbers: numbers
come from the order of the commits. Base, Touches and images are refresh's to write, not a person's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from patches import header
from patches.errors import PatchError
from patches.header import WRITTEN, Field, Header

NAME = "Patch"
_FIELDS = (*WRITTEN[1:], NAME)

#: What `git commit` opens with.
TEMPLATE = """

Why: 
Depends: none
Origin: 
Forwarded: no
Retire-When: 
"""


@dataclass(frozen=True)
class Message:
    """The part of a header that a person writes; `depends` as written, with or without numbers."""

    slug: str
    description: str
    why: str
    depends: tuple[str, ...]
    origin: str
    forwarded: str
    retire_when: str


def render(head: Header, slug: str) -> str:
    """The commit message of a patch."""
    subject, _, text = head.description.partition("\n")
    parts = [f"{subject}\n\n"]
    if text:
        parts.append(f"{text}\n\n")
    values = (head.why, ", ".join(head.depends) or header.NONE, head.origin, head.forwarded, head.retire_when, slug)
    parts += (header.fold(name, value) for name, value in zip(_FIELDS, values, strict=True))
    return "".join(parts)


def parse(text: str, *, commit: str) -> Message:
    """Read a commit message; `commit` is how errors name it.

    Raises:
        PatchError: all fields that the message lacks, or the first that is malformed.
    """
    lines = [line.rstrip() for line in text.strip().split("\n")]
    start = next((at for at, line in enumerate(lines) if at and line.partition(":")[0] in _FIELDS), len(lines))
    # git's own editor leaves empty lines between fields; a field's own empty line is ` .`.
    block = [line for line in lines[start:] if line]
    fields = header.read_fields(block, file=commit)
    hint = ": `git commit --amend` (or `git rebase -i`) in the work tree, and write them below the text, one a line"
    subject, body = lines[0], "\n".join(lines[1:start]).strip("\n")
    description = Field("Description", subject + (f"\n{body}" if body else ""), 1)
    named = [item for item in fields if item.name == NAME]
    header.check_names([description, *(item for item in fields if item.name != NAME)], WRITTEN, file=commit, hint=hint)
    at = {item.name: item for item in (description, *fields)}
    header.read_fields(header.fold("Description", description.value).split("\n")[:-1], file=commit)
    header.check_text(at, file=commit)
    slug = named[-1].value if named else slugify(subject)
    if len(named) > 1 or not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", slug):
        raise PatchError(commit, None, f"{NAME} is one name, in lower case with hyphens between words, without number or ending")
    return Message(
        slug=slug,
        description=description.value,
        why=at["Why"].value,
        depends=header.parse_depends(at["Depends"], file=commit),
        origin=at["Origin"].value,
        forwarded=at["Forwarded"].value,
        retire_when=at["Retire-When"].value,
    )


def slugify(subject: str) -> str:
    """A file name from a subject: at most 50 characters, cut between words."""
    words = re.findall(r"[a-z0-9]+", subject.lower())
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word
        if len(longer) > 50:
            break
        slug = longer
    return slug or "patch"


def bare(name: str) -> str:
    """A patch's name without number and ending, if it has them."""
    return re.sub(r"^\d{4}-", "", name.removesuffix(".patch"))
