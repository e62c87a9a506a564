"""Commits become patches, and what a commit did not change stays the same bytes.

Edit, then refresh without changes, writes nothing, for any series that `check` passes. All patches are made in memory first;
a commit that cannot be a patch stops the whole with its name and what it lacks. Numbers follow the order of the commits.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from patches import differ, edit, message, patch, series
from patches.apply import sha256
from patches.diff import PACKAGE, FileDiff
from patches.errors import PatchError
from patches.git import Repository
from patches.header import Header, Image
from patches.message import Message
from patches.patch import Patch
from patches.series import Series
from tools.cli import UserError

#: sha256 of every patch, in the form that `sha256sum --check` reads.
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Refreshed:
    """What `refresh` did: names of patches."""

    unchanged: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _Commit:
    """One commit of the work tree; `label` names it in errors."""

    id: str
    label: str
    message: Message


def refresh(version: str, root: Path, where: Path, *, force: bool = False) -> Refreshed:
    """Write the commits of the work tree `root` to the series folder `where`.

    Raises:
        UserError: uncommitted changes, a series that changed since `make edit` (unless `force`), or a commit that cannot be
            a patch. Nothing is written then.
    """
    if not (root / ".git").exists():
        raise UserError(f"there is no work tree at {root}: `make edit` makes one")
    repository = Repository(root)
    if repository.busy:
        raise UserError(f"{root} is in the middle of {repository.busy}: finish or abort it")
    if dirty := repository.dirty:
        raise UserError(
            f"{root} has uncommitted changes ({', '.join(dirty[:3])}): commit or amend them, a patch is made from a commit"
        )
    before = _on_disk(version, where)
    laid_out = repository.try_text("config", "--local", edit.DIGEST)
    if not force and (before is None or before.digest != laid_out):
        raise UserError(
            f"the patches in {where} are not those that `make edit` laid out, and would be overwritten: "
            "save yours (commit them, or keep the work tree), then take the one you want: `make edit` or `make refresh FORCE=1`"
        )

    made = _make(repository, version)
    old = {path.name: path.read_bytes() for path in where.glob("*.patch")}
    new = {item.name: item.data for item in made}
    files = new | {series.LIST: _listing(where, made), SUMS: sums(made)}
    for name, data in files.items():
        if not (where / name).exists() or (where / name).read_bytes() != data:
            _replace(where / name, data)
    removed = tuple(sorted(old.keys() - new.keys()))
    for name in removed:
        (where / name).unlink()
    repository.run("update-ref", edit.WRITTEN, "HEAD")
    repository.run("config", "--local", edit.DIGEST, Series(version, made).digest)
    unchanged = tuple(name for name in new if old.get(name) == new[name])
    return Refreshed(unchanged, tuple(name for name in new if name not in unchanged), removed)


def sums(patches: tuple[Patch, ...]) -> bytes:
    """The content of `SHA256SUMS`."""
    return "".join(f"{hashlib.sha256(item.data).hexdigest()}  {item.name}\n" for item in patches).encode()


def _on_disk(version: str, where: Path) -> Series | None:
    try:
        return series.load(version, where=where)
    except PatchError:
        return None


def _make(repository: Repository, version: str) -> tuple[Patch, ...]:
    base = repository.text("rev-parse", "--verify", edit.BASE)
    if repository.try_text("merge-base", "--is-ancestor", base, "HEAD") is None:
        raise UserError(f"the pristine commit {base[:10]} is no longer the root of the work tree: it is not to be changed")
    commits: list[_Commit] = []
    errors: list[str] = []
    for line in repository.text("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..HEAD").splitlines():
        commit, *parents = line.split(" ")
        text = repository.run("log", "-1", "--format=%B", "--encoding=UTF-8", commit).decode()
        label = f"commit {commit[:10]} ({text.strip().partition(chr(10))[0] or 'without a subject'})"
        if len(parents) != 1:
            raise UserError(f"{label} is a merge: the series is a line, rebase it")
        try:
            commits.append(_Commit(commit, label, message.parse(text, commit=label)))
        except PatchError as error:
            errors.append(str(error))
    if errors:
        raise UserError("\n       ".join(errors))

    names: dict[str, str] = {}
    made: list[Patch] = []
    for number, commit in enumerate(commits, 1):
        slug = commit.message.slug
        if slug in names:
            raise UserError(f"{commit.label} would be named {slug}, as an earlier one is: give it a line `Patch: another-name`")
        made.append(_patch(repository, version, commit, f"{number:04d}-{slug}.patch", names))
        names[slug] = made[-1].name
    return tuple(made)


def _patch(repository: Repository, version: str, commit: _Commit, name: str, names: dict[str, str]) -> Patch:
    words = commit.message
    unknown = [depend for depend in words.depends if message.bare(depend) not in names]
    if unknown:
        raise UserError(f"{commit.label} depends on {', '.join(unknown)}, and no earlier commit is the patch of that name")
    files: list[FileDiff] = []
    images: list[Image] = []
    for path, old, new in _changes(repository, commit):
        try:
            files.append(differ.file_diff(path, old, new))
        except ValueError as reason:
            raise UserError(f"{commit.label}: {path}: {reason}") from None
        images.append(Image(path, sha256(old), sha256(new)))
    if not files:
        raise UserError(f"{commit.label} changes no file: drop it, or commit what belongs to it")
    head = Header(
        description=words.description,
        why=words.why,
        base=f"sglang=={version}",
        touches=tuple(item.path for item in files),
        depends=tuple(names[message.bare(depend)] for depend in words.depends),
        origin=words.origin,
        forwarded=words.forwarded,
        retire_when=words.retire_when,
        images=tuple(images),
    )
    return patch.parse(name, patch.render(head, tuple(files)))


def _changes(repository: Repository, commit: _Commit) -> list[tuple[str, bytes | None, bytes | None]]:
    """Path, old and new bytes of each file that a commit changes, sorted by path."""
    raw = repository.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-commit-id", f"{commit.id}^", commit.id)
    entries = raw.decode("utf-8", "replace").split("\0")[:-1]
    found: list[tuple[str, bytes | None, bytes | None]] = []
    for info, path in zip(entries[::2], entries[1::2], strict=True):
        old_mode, new_mode, old, new, _ = info[1:].split(" ")
        if not path.startswith(PACKAGE):
            raise UserError(f"{commit.label} changes {path}, which is not under {PACKAGE}: patches touch the package only")
        if new_mode not in ("000000", "100644") and new_mode != old_mode:
            what = {"120000": "a symbolic link", "160000": "a nested git repository"}.get(new_mode, f"of mode {new_mode}")
            raise UserError(f"{commit.label} makes {path} {what}: patches hold plain files and no mode changes")
        if old_mode not in ("000000", new_mode) and new_mode != "000000":
            raise UserError(
                f"{commit.label} changes the mode of {path} from {old_mode} to {new_mode}: patches hold no mode changes"
            )
        found.append((path, _blob(repository, old), _blob(repository, new)))
    return sorted(found, key=lambda change: change[0])


def _blob(repository: Repository, name: str) -> bytes | None:
    return None if set(name) == {"0"} else repository.run("cat-file", "blob", name)


def _listing(where: Path, made: tuple[Patch, ...]) -> bytes:
    """The series file anew: comments stay at the head, at the end, or above the patch that they stood above."""
    text = (where / series.LIST).read_text() if (where / series.LIST).exists() else ""
    head: list[str] | None = None
    pending: list[str] = []
    above: dict[str, list[str]] = {}
    tails: dict[str, str] = {}
    for line in [*text.splitlines(), None]:
        name, mark, remark = (line or "").partition("#")
        if name.strip() or line is None:
            slug = message.bare(name.strip())
            if head is None:
                head, pending = pending, []
            above[slug], pending = pending, []
            tails[slug] = f"{name[len(name.rstrip()) :]}{mark}{remark}"
        else:
            pending.append(line)
    lines = list(head or [])
    for item in made:
        lines += [*above.get(item.slug, []), item.name + tails.get(item.slug, "")]
    lines += above[""]
    return "".join(f"{line}\n" for line in lines).encode()


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    os.replace(temporary, path)
