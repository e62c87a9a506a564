"""Facts and their like as JSON and back, by their declared types: what a host sends is data, and is only ever read as data."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any


def load(kind: Any, value: Any) -> Any:
    """`value`, a JSON document, as a `kind`. Raises TypeError or ValueError if it is none."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return load(next(part for part in inner if part is not type(None)), value)
    if origin is tuple:
        parts = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(load(part, item) for part, item in zip(parts, value, strict=True))
    if origin is dict:
        return {str(name): load(inner[1], item) for name, item in value.items()}
    if origin is list:
        return [load(inner[0], item) for item in value]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: load(hints[name], item) for name, item in value.items()})
    if kind is Path:
        return Path(load(str, value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
    return value


def dump(value: Any) -> Any:
    """The document of `value`."""
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    if isinstance(value, (list, tuple)):
        return [dump(item) for item in value]
    return value
