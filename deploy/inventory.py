"""The inventory, `hosts.toml`: every entry is checked whole before anything is done with it.

A mistake is answered with the file, the line and the key, and what would be right. Unknown keys are mistakes.

    entry = load("sandbox")
    entry.port, entry.limits.drain
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from deploy import ports
from tools.cli import UserError
from tools.paths import REPO

DEFAULT = "sandbox"
FILE = Path(__file__).with_name("hosts.toml")
TRANSPORTS = ("local",)
ALGORITHMS = ("DDTREE", "DFLASH")


@dataclass(frozen=True)
class Limits:
    """When the deployer stops waiting, and which accept length it takes for sound."""

    start: float = 300.0  # seconds until the server is healthy
    drain: float = 20.0  # seconds that running requests get at a stop
    answer: float = 180.0  # seconds for one generation, or for all probes
    accept_min: float = 1.0  # tokens a verify step; exclusive
    accept_max: float = 64.0  # inclusive


@dataclass(frozen=True)
class Entry:
    """One host, as its operator wants it."""

    name: str
    transport: str
    profile: str
    pair: str
    root: Path
    port: int
    algorithm: str = "DDTREE"
    budget: int = 22
    keep: int = 3
    server: tuple[tuple[str, Any], ...] = ()  # (flag without dashes, value), in the file's order
    limits: Limits = Limits()


_KINDS: dict[str, tuple[type, str]] = {
    "transport": (str, "a string"),
    "profile": (str, "a string"),
    "pair": (str, "a string"),
    "root": (str, "a path"),
    "port": (int, "a whole number"),
    "algorithm": (str, "a string"),
    "budget": (int, "a whole number"),
    "keep": (int, "a whole number"),
    "server": (dict, "a table"),
    "limits": (dict, "a table"),
}
_RANGES = {"port": (ports.LOWEST, ports.HIGHEST), "budget": (1, 1024), "keep": (1, 1000)}
_REQUIRED = ("transport", "profile", "pair", "root", "port")


def load(name: str | None = None, *, file: Path | None = None, port: str | None = None) -> Entry:
    """The entry of host `name`; `port` (text, as from the environment) overrides its port."""
    file = file or FILE
    name = name or DEFAULT
    try:
        text = file.read_text(encoding="utf-8")
        hosts = tomllib.loads(text).get("hosts", {})
    except OSError as error:
        raise UserError(f"the inventory {file} can't be read: {error.strerror}", 2) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: {error}", 2) from None
    if name not in hosts:
        known = ", ".join(sorted(hosts)) or "none"
        raise UserError(f"{file.name} has no host {name!r}; it has: {known}", 2)
    return _entry(name, hosts[name], _Place(file, text), port)


@dataclass(frozen=True)
class _Place:
    file: Path
    text: str

    def error(self, table: str, key: str, what: str) -> UserError:
        return UserError(f"{self.file.name}:{self._line(table, key)}: {table}.{key}: {what}", 2)

    def _line(self, table: str, key: str) -> int:
        """The line of `key` in `[table]`; the table's own line where the key is not written."""
        inside, found = False, 1
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.lstrip().startswith("["):
                inside = line.split("#")[0].strip() in (f"[{table}]", f"[{table}.{key}]")
                found = number if inside else found
            elif inside and re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
                return number
        return found


def _entry(name: str, raw: dict[str, Any], place: _Place, port: str | None) -> Entry:
    table = f"hosts.{name}"
    for key, value in raw.items():
        if key not in _KINDS:
            raise place.error(table, key, f"unknown key; known: {', '.join(_KINDS)}")
        _check(place, table, key, value, *_KINDS[key])
    for key in _REQUIRED:
        if key not in raw:
            raise place.error(table, key, "is missing")
    if raw["transport"] not in TRANSPORTS:
        raise place.error(table, "transport", f"{raw['transport']!r} is not supported yet, only {', '.join(TRANSPORTS)}")
    if raw.get("algorithm", "DDTREE") not in ALGORITHMS:
        raise place.error(table, "algorithm", f"is {raw['algorithm']!r}, must be one of {', '.join(ALGORITHMS)}")
    server = raw.pop("server", {})
    for flag, value in server.items():
        if not isinstance(value, (str, int, float, bool)) or not re.fullmatch(r"[a-z][a-z0-9-]*", flag):
            raise place.error(f"{table}.server", flag, "must be a flag's name without dashes and a plain value")
    limits = _limits(raw.pop("limits", {}), place, f"{table}.limits")
    raw["root"] = REPO / os.path.expanduser(raw["root"])
    if port:
        if not port.isdigit() or not ports.LOWEST <= int(port) <= ports.HIGHEST:
            raise UserError(f"PORT is {port!r}, must be a number from {ports.LOWEST} to {ports.HIGHEST}", 2)
        raw["port"] = int(port)
    return Entry(name=name, server=tuple(server.items()), limits=limits, **raw)


def _limits(raw: dict[str, Any], place: _Place, table: str) -> Limits:
    known = {field.name.replace("_", "-"): field.name for field in fields(Limits)}
    for key, value in raw.items():
        if key not in known:
            raise place.error(table, key, f"unknown key; known: {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise place.error(table, key, f"is {value!r}, must be a number above 0")
    return Limits(**{known[key]: float(value) for key, value in raw.items()})


def _check(place: _Place, table: str, key: str, value: object, kind: type, words: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise place.error(table, key, f"is {value!r}, must be {words}")
    low, high = _RANGES.get(key, (None, None))
    if low is not None and not low <= value <= high:
        raise place.error(table, key, f"is {value}, must be from {low} to {high}")
