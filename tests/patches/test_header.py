"""Headers and commit messages: one form each, and nothing lost between them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patches import header, message
from patches.errors import PatchError
from patches.header import Header, Image

WORD = st.text(string.ascii_letters + string.digits + "-_.:#()/é", min_size=1, max_size=8)
#: A line of a lone `.` stands for an empty one, as in DEP-3.
LINE = st.lists(WORD, min_size=1, max_size=6).map(" ".join).filter(lambda line: line != ".")
#: Lines with empty ones between, as a person writes paragraphs.
PARAGRAPHS = st.lists(st.lists(LINE, min_size=1, max_size=3).map("\n".join), min_size=1, max_size=3).map("\n\n".join)
PLAIN = PARAGRAPHS.filter(lambda text: not any(line.startswith("#") or ":" in line for line in text.split("\n")))
DESCRIPTION = (
    st.tuples(LINE, st.one_of(st.just(""), PLAIN))
    .map(lambda parts: "\n".join(part for part in parts if part))
    .filter(lambda text: not text.startswith("#") and ":" not in text.split("\n")[0])
)
HEADERS = st.builds(
    Header,
    description=DESCRIPTION,
    why=PARAGRAPHS,
    base=st.just("sglang==0.5.11"),
    touches=st.just(("sglang/a.py", "sglang/b.py")),
    depends=st.lists(st.sampled_from(["0001-a.patch", "0002-b.patch"]), unique=True).map(tuple),
    origin=LINE,
    forwarded=st.sampled_from(["no", "not-needed", "https://example.org/1"]),
    retire_when=PARAGRAPHS,
    images=st.just((Image("sglang/a.py", None, "0" * 64), Image("sglang/b.py", "1" * 64, None))),
)


@given(HEADERS)
@settings(deadline=None)
def test_a_header_comes_back_from_its_text(head: Header) -> None:
    text = header.render(head)
    parsed = header.parse(text.split("\n")[:-1], file="0001-x.patch")
    assert parsed == head and header.render(parsed) == text


@given(HEADERS)
@settings(deadline=None)
def test_a_header_comes_back_from_its_commit_message(head: Header) -> None:
    text = message.render(head, "some-name")
    words = message.parse(text, commit="commit x")
    assert (words.slug, words.description, words.why, words.depends, words.origin, words.forwarded, words.retire_when) == (
        "some-name",
        head.description,
        head.why,
        head.depends,
        head.origin,
        head.forwarded,
        head.retire_when,
    )


def test_lines_are_counted_in_the_patch() -> None:
    text = "Description: One\n more\nWhy: a\nBase: b\nTouches: c\nDepends: none\nOrigin: o\nForwarded: no\nRetire-When: r\n"
    lines = header.parse(text.split("\n")[:-1], file="0001-x.patch").lines
    assert lines == {name: number for name, number in zip(header.FIELDS, (1, 3, 4, 5, 6, 7, 8, 9), strict=True)}


@pytest.mark.parametrize(
    ("subject", "slug"),
    [
        ("Read the drafter's rope_theta", "read-the-drafter-s-rope-theta"),
        ("Éa 5%", "a-5"),
        ("word " * 30, "word-word-word-word-word-word-word-word-word-word"),
        ("…", "patch"),
    ],
)
def test_a_name_is_made_from_the_subject(subject: str, slug: str) -> None:
    assert message.slugify(subject) == slug


@pytest.mark.parametrize("line", ["#1 is a comment to git", "Why: not here"])
def test_a_description_that_a_commit_message_would_lose_is_refused(line: str) -> None:
    text = f"Description: One\n {line}\nWhy: a\nBase: b\nTouches: c\nDepends: none\nOrigin: o\nForwarded: no\nRetire-When: r"
    with pytest.raises(PatchError, match=r"0001-x\.patch:2: a description's line may not begin"):
        header.parse(text.split("\n"), file="0001-x.patch")
