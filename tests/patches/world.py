"""A small pristine tree and series made from edits, so that each test says only what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patches import check, differ, patch, refresh, series
from patches.apply import sha256
from patches.header import Header, Image
from patches.series import Series

VERSION = "0.5.11"

#: A file long enough for two hunks with lines between them.
LONG = b"".join(b"line_%d = %d\n" % (n, n) for n in range(1, 41))
PRISTINE: dict[str, bytes] = {
    "sglang/__init__.py": b'"""The package."""\n',
    "sglang/long.py": LONG,
    "sglang/short.py": b"one = 1\ntwo = 2\n",
    "sglang/no_newline.py": b"first = 1\nlast = 2",
    "sglang/deep/er/mod.py": b"def f():\n    return 1\n",
    "sglang/blank.py": b"a = 1\n\nb = 2\n",
    "sglang/data.bin": bytes(range(256)),
}


@dataclass(frozen=True)
class World:
    """`pristine` and `folder` (the series) under one directory."""

    root: Path

    @property
    def pristine(self) -> Path:
        return self.root / "pristine"

    @property
    def folder(self) -> Path:
        return self.root / "series"

    @property
    def site(self) -> Path:
        """A writable copy of the pristine tree, made at the first call."""
        site = self.root / "site"
        if not site.exists():
            lay_out(site, PRISTINE)
        return site

    def series(self, *edits: tuple[str, Mapping[str, bytes | None]], **words: str) -> Series:
        """Write the series that makes `edits` (slug, new contents) one after the other."""
        state: dict[str, bytes | None] = dict(PRISTINE)
        made = []
        for number, (slug, contents) in enumerate(edits, 1):
            old = {path: state.get(path) for path in sorted(contents)}
            made.append(make(f"{number:04d}-{slug}.patch", old, contents, **words))
            state |= contents
        for item in made:
            (self.folder / item.name).write_bytes(item.data)
        self.list(*(item.name for item in made))
        (self.folder / refresh.SUMS).write_bytes(refresh.sums(tuple(made)))
        return series.load(VERSION, where=self.folder)

    def list(self, *names: str) -> None:
        (self.folder / series.LIST).write_text("".join(f"{name}\n" for name in names))

    def check(self) -> check.Checked:
        return check.check(VERSION, self.folder, lambda: self.pristine)

    def sentences(self) -> list[str]:
        """All findings of a check as `file:line: reason`."""
        result = self.check()
        found = [*result.findings, *(finding for verdict in result.verdicts for finding in verdict.findings)]
        assert result.ok == (not found)
        return [f"{finding.file}:{finding.line}: {finding.reason}" for finding in found]


def lay_out(root: Path, contents: Mapping[str, bytes]) -> None:
    for path, data in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def make(name: str, old: Mapping[str, bytes | None], new: Mapping[str, bytes | None], **words: str) -> patch.Patch:
    """A patch from contents before and after; `words` are header fields other than the usual ones."""
    files = tuple(differ.file_diff(path, old[path], new[path]) for path in sorted(new))
    head = Header(
        description=words.get("description", "Change something\nThe text says more."),
        why=words.get("why", "A test needs it.\n\nIt really does."),
        base=f"sglang=={VERSION}",
        touches=tuple(sorted(new)),
        depends=(),
        origin="own work",
        forwarded="no",
        retire_when="the tests are gone",
        images=tuple(Image(path, sha256(old[path]), sha256(new[path])) for path in sorted(new)),
    )
    return patch.parse(name, patch.render(head, files))


def fingerprint(root: Path) -> str:
    """A hash over every name, kind, mode and byte under `root`."""
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        total.update(f"{path.relative_to(root)} {status.st_mode:o} {len(data)} ".encode() + data)
    return total.hexdigest()
