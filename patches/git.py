"""git sees nothing of the user's set-up here: no configuration, hooks, templates, environment, or outer repository.

Identity and dates are fixed, so the same series gives the same commit ids on every machine.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.cli import UserError

#: Settings of the work tree, written into its own configuration, so that they also hold for a person's git in there.
SETTINGS = {
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.fileMode": "true",
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "user.name": "patch series",
    "user.email": "series@localhost",
}


@dataclass(frozen=True)
class Repository:
    """A git work tree at `root`; every call has a deadline."""

    root: Path

    def run(self, *arguments: str, data: bytes = b"", timeout: float = 120) -> bytes:
        """Run git and give its output.

        Raises:
            UserError: git is missing, failed, or did not end in `timeout` seconds.
        """
        command = ["git", "-C", str(self.root), *arguments]
        try:
            done = subprocess.run(
                command, input=data, capture_output=True, timeout=timeout, check=False, env=_environment(self.root)
            )
        except FileNotFoundError:
            raise UserError("git is not installed: the edit loop works on a git work tree") from None
        except subprocess.TimeoutExpired:
            raise UserError(f"`{' '.join(command[:4])} ...` did not end in {timeout:.0f} s") from None
        if done.returncode:
            raise UserError(
                f"`git {' '.join(arguments[:3])}` failed in {self.root}: {done.stderr.decode(errors='replace').strip()}"
            )
        return done.stdout

    def text(self, *arguments: str) -> str:
        """Output of git, stripped."""
        return self.run(*arguments).decode(errors="replace").strip()

    def try_text(self, *arguments: str) -> str | None:
        """Output of git, or None if it says no."""
        try:
            return self.text(*arguments)
        except UserError:
            return None

    def init(self) -> None:
        """Make the repository and its settings."""
        self.run("init", "--quiet", "--template=", "--initial-branch=series")
        for name, value in SETTINGS.items():
            self.run("config", "--local", name, value)
        info = self.root / ".git" / "info"
        info.mkdir(exist_ok=True)
        (info / "exclude").write_text("__pycache__/\n*.pyc\n")

    def commit(self, message: str) -> str:
        """Commit the index as it is; gives the id."""
        self.run("commit", "--quiet", "--allow-empty", "--no-verify", "--cleanup=verbatim", "--file=-", data=message.encode())
        return self.text("rev-parse", "HEAD")

    @property
    def busy(self) -> str | None:
        """What is half done in the work tree, in a word or two; None when nothing is."""
        for name, what in (
            ("rebase-merge", "a rebase"),
            ("rebase-apply", "a rebase"),
            ("MERGE_HEAD", "a merge"),
            ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ):
            if (self.root / ".git" / name).exists():
                return what
        return None

    @property
    def dirty(self) -> list[str]:
        """Paths with uncommitted changes, untracked ones included."""
        entries = self.run("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all").decode(errors="replace")
        return [entry[3:] for entry in entries.split("\0") if entry]


def _environment(root: Path) -> dict[str, str]:
    keep = {name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH")}
    date = "2026-01-01T00:00:00+0000"
    return keep | {
        "HOME": str(root),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        # A repository around this one is none of its business.
        "GIT_CEILING_DIRECTORIES": str(root.parent),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "false",
        "GIT_AUTHOR_NAME": SETTINGS["user.name"],
        "GIT_AUTHOR_EMAIL": SETTINGS["user.email"],
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": SETTINGS["user.name"],
        "GIT_COMMITTER_EMAIL": SETTINGS["user.email"],
        "GIT_COMMITTER_DATE": date,
    }
