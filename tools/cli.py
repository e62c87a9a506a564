"""What the command lines of all rooms share: one kind of error, one console, one way to end.

A command is a function that takes parsed arguments and returns an exit code (see `DESIGN` in README.md for the codes).
A user's mistake is raised as `UserError`: it is printed as one sentence, never as a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rich.console import Console

from tools.errors import UserError

__all__ = ["UserError", "err", "out", "run"]


class _Console(Console):
    """Goes quiet where nobody reads any longer, instead of ending the command: what it has begun it brings to an end."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


#: Standard output; plain text when it is not a terminal. Without emoji, which `file:100:` would become.
out = _Console(highlight=False, soft_wrap=True, emoji=False)
#: Standard error; progress bars and errors go here, so that `--json` output stays clean.
err = _Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def run(main: Callable[[], int]) -> None:
    """Run `main`, print a `UserError` as one sentence, and exit with the code."""
    try:
        code = main()
    except UserError as error:
        err.print(f"error: {error}", markup=False)
        code = error.code
    except KeyboardInterrupt:
        err.print("interrupted")
        code = 130
    except BrokenPipeError:
        code = 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has enough of it; nor may the interpreter's own flush at exit complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
