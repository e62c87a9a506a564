"""The doctor before a switch: a site root with an error is not switched to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

from overlay.doctor import command, host, rules
from overlay.doctor.facts import Facts
from overlay.doctor.finding import Severity
from tools.cli import UserError


def require(root: Path) -> None:
    """Pass a site root of this machine, or raise UserError with its errors."""
    judge(command.gather(root), str(root))


def key(root: Path) -> str:
    """A hash of all that `require` judges: every file under the root by name, size and time, this machine's own facts, and the
    doctor itself. Far cheaper than the verdict, which opens the files."""
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            total.update(path.read_bytes())
    machine = dataclasses.asdict(host.read(root, os.environ))
    total.update(json.dumps(machine, sort_keys=True, default=sorted).encode())
    folders = [str(root)]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    stat = entry.stat(follow_symlinks=False)
                    total.update(
                        f"{entry.path}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_mode}\n".encode(errors="surrogateescape")
                    )
    return total.hexdigest()


def judge(facts: Facts, subject: str) -> None:
    """Pass facts, or raise UserError that names each error with what mends it."""
    errors = [one for one in rules.examine(facts) if one.severity is Severity.ERROR]
    if not errors:
        return
    said = "; ".join(f"{one.rule}: {one.title} (mend: {one.remedy})" for one in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    raise UserError(f"the doctor finds {count} in {subject}, so nothing is changed: {said}{more}")
