"""The one kind of error for what a user can mend; standard library only, since it also travels to hosts."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that the user can mend: says what is wrong, where, and how to mend it.

    `code` is the process's exit code: 1 nothing was changed, 2 usage, 3 rolled back, 4 a person is needed.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
