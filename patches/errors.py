"""Every refusal of a patch says the file, the line and the reason, in one sentence."""

from __future__ import annotations

from tools.cli import UserError


class PatchError(UserError):
    """A patch, or the series file, is not fit to use.

    `file` is a name relative to the series folder, `line` is 1-based (None: the file as a whole), `reason` the sentence.
    """

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason
