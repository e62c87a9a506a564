"""Checks whose good verdict holds as long as what they judge is the same: one is made once for each key, not at each command.

A key is a hash of all that the check looks at, its own code included. Only "nothing is wrong" is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.paths import CACHE

FOLDER = CACHE / "deploy" / "passed"


def once(name: str, key: str, check: Callable[[], None]) -> None:
    """Run `check`, which raises if something is wrong, unless it passed with this key before."""
    passed = FOLDER / name
    if passed.is_file() and passed.read_text() == key:
        return
    check()
    FOLDER.mkdir(parents=True, exist_ok=True)
    temporary = passed.with_name(f".{name}.{id(check)}")
    temporary.write_text(key)
    temporary.replace(passed)
