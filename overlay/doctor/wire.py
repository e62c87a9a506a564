"""Facts as JSON, for the way from a host and for files; and back. Symbols that no rule asks for stay behind."""

from __future__ import annotations

import dataclasses
from typing import Any

from overlay.doctor import symbols
from overlay.doctor.facts import Cached, Damage, Distribution, Entry, Facts, Gpu, Host, Library, Tool
from overlay.doctor.fatbin import Code

#: Of the form of the document; another one is refused.
FORM = 1


def encode(facts: Facts) -> dict[str, Any]:
    """The facts as what `json` can write. A CUDA environment exports half a million symbols, and rules ask for a fifth."""
    return {"form": FORM, **_fields(dataclasses.replace(facts, libraries=tuple(_asked_for(one) for one in facts.libraries)))}


def decode(document: Any) -> Facts:
    """The facts of a document. Raises ValueError if it is none."""
    if not isinstance(document, dict) or document.get("form") != FORM:
        raise ValueError("it is not a document of facts, or of another version of this program")
    try:
        fields = {key: value for key, value in document.items() if key != "form"}
        host = fields.pop("host")
        return Facts(
            **{
                **fields,
                "distributions": tuple(_distribution(one) for one in fields["distributions"]),
                "libraries": tuple(_library(one) for one in fields["libraries"]),
                "damage": tuple(Damage(**one) for one in fields["damage"]),
                "host": _host(host) if host else None,
                "maps": {int(process): text for process, text in fields["maps"].items()},
                "known_exports": frozenset(fields["known_exports"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a whole document of facts ({error})") from error


def _asked_for(one: Library) -> Library:
    return dataclasses.replace(
        one,
        undefined=frozenset(filter(symbols.asked_for, one.undefined)),
        exported=frozenset(filter(symbols.asked_for, one.exported)),
    )


def _fields(one: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(one, field.name)) for field in dataclasses.fields(one)}


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, Entry):  # by far the most numerous
        return [value.path, value.sha256, value.size, value.found]
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    raise TypeError(f"a fact of type {type(value).__name__} has no form as JSON")


def _distribution(one: dict[str, Any]) -> Distribution:
    record = None if one["record"] is None else tuple(Entry(*entry) for entry in one["record"])
    requires = None if one["requires"] is None else tuple(one["requires"])
    return Distribution(one["name"], one["version"], requires, record, tuple(one["outside"]))


def _library(one: dict[str, Any]) -> Library:
    return Library(
        one["path"],
        one["owner"],
        tuple(one["needed"]),
        tuple(one["rpath"]),
        frozenset(one["undefined"]),
        frozenset(one["exported"]),
        tuple(Code(*code) for code in one["code"]),
        one["soname"],
    )


def _host(one: dict[str, Any]) -> Host:
    return Host(
        driver=one["driver"],
        gpus=tuple(Gpu(**gpu) for gpu in one["gpus"]),
        tools=tuple(Tool(**{**tool, "version": tuple(tool["version"]) if tool["version"] else None}) for tool in one["tools"]),
        cached=tuple(Cached(**{**file, "needed": tuple(file["needed"])}) for file in one["cached"]),
        shadows=tuple(one["shadows"]),
        fallbacks=tuple(one["fallbacks"]),
        extra_sites=tuple(one["extra_sites"]),
        system=frozenset(one["system"]),
    )
