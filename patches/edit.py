"""The series as a git work tree: the pristine package is the first commit, then one commit a patch. Nothing of yours is lost.

`.cache/edit/<version>/` is an ordinary work tree: commit, amend, rebase, bisect in it. It makes way only when all in it is
committed and refreshed, or for `--force`, and then it is moved aside, never deleted. Files are copies, so an editor may
write in place.
The refs `refs/series/base` (pristine) and `refs/series/written` (as last laid out or refreshed) say where things stand.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patches import apply, message, tree
from patches.git import Repository
from patches.series import Series, steps
from tools.cli import UserError

BASE = "refs/series/base"
WRITTEN = "refs/series/written"
#: Git setting that holds the digest of the series that the commits stand for.
DIGEST = "series.digest"


@dataclass(frozen=True)
class Edit:
    """The work tree, and what was done to get it."""

    root: Path
    commits: int
    #: False if it was there already and stands for the series as it is.
    made: bool
    #: Where the former one went, with `force`.
    aside: Path | None = None


def lay_out(series: Series, pristine: Path, root: Path, *, force: bool = False) -> Edit:
    """Make the work tree of `series` at `root`, or take the one that is there and stands for the same series.

    Raises:
        UserError: there is work in it that is not in the series yet; says what, and how to go on.
    """
    aside = None
    if root.exists():
        reason = unsaved(root)
        if reason and not force:
            raise UserError(f"{root} {reason}, or give the work up with `make edit FORCE=1` (it is moved aside)")
        repository = Repository(root)
        if not reason and not force and repository.try_text("config", "--local", DIGEST) == series.digest:
            return Edit(root, len(series.patches), made=False)
        # Its commits may be the only copy of patches that were taken back since.
        aside = _free_name(root)

    root.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{root.name}.", dir=root.parent))
    try:
        temporary.chmod(0o755)
        _commit_all(series, pristine, Repository(temporary))
        if aside:
            root.rename(aside)
        temporary.rename(root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Edit(root, len(series.patches), made=True, aside=aside)


def unsaved(root: Path) -> str | None:
    """What in the work tree is not in the patches yet, as the rest of a sentence; None if all is."""
    repository = Repository(root)
    written = repository.try_text("rev-parse", "--verify", "--quiet", WRITTEN) if (root / ".git").exists() else None
    if written is None:
        return "is no work tree of `make edit`: move it away"
    if repository.busy:
        return f"is in the middle of {repository.busy}: finish or abort it"
    if dirty := repository.dirty:
        return f"has uncommitted changes ({_some(dirty)}): commit them and run `make refresh`"
    if repository.text("rev-parse", "HEAD") != written:
        return "has commits that are not in the patches yet: run `make refresh`"
    return None


def _commit_all(series: Series, pristine: Path, repository: Repository) -> None:
    repository.init()
    (repository.root / ".git" / "message").write_text(message.TEMPLATE)
    repository.run("config", "--local", "commit.template", ".git/message")
    shutil.copytree(pristine / tree.PACKAGE, repository.root / tree.PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    for path in tree.files(repository.root):
        place = repository.root / path
        place.chmod(place.stat().st_mode | 0o200)
    repository.run("add", "--force", "--", tree.PACKAGE)
    base = repository.commit(f"sglang {series.version}, pristine\n")
    repository.run("update-ref", BASE, base)

    state: dict[str, bytes | None] = {}
    read = apply.reader(pristine)
    for patch in series.patches:
        for step in steps(patch):
            path = step.diff.path
            state[path] = apply.advance(path, (step,), state[path] if path in state else read(path))
            _place(repository.root / path, state[path])
        repository.run("add", "--force", "--all", "--", *(item.path for item in patch.files))
        repository.commit(message.render(patch.header, patch.slug))
    repository.run("update-ref", WRITTEN, "HEAD")
    repository.run("config", "--local", DIGEST, series.digest)


def _place(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def _free_name(root: Path) -> Path:
    number = 1
    while (name := root.with_name(f"{root.name}.aside-{number}")).exists():
        number += 1
    return name


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
