"""What Triton's interpreter does anew at every call of a kernel or of a device function, done once."""

from __future__ import annotations

import functools
import inspect

from triton.language.core import is_builtin


def builtins_to_replace(owner: object) -> list[tuple[str, object]]:
    """Names and values of the Triton builtins of a module or class that the interpreter has yet to replace.

    All of them in a kernel's call, none in a device function's, which is called from a kernel that replaced them.
    """
    builtins = _builtins(owner)
    replaced = builtins and getattr(owner, builtins[0][0]) is not builtins[0][1]
    return [] if replaced else builtins


@functools.cache
def _builtins(owner: object) -> list[tuple[str, object]]:
    return [(name, member) for name, member in inspect.getmembers(owner) if is_builtin(member)]
