"""The inventory, `hosts.toml` and over it the private `hosts.local.toml`: an entry is checked whole before it is used.

A mistake is answered with the file, the line and the key, and what would be right. Unknown keys are mistakes.

    entry = load("sandbox")
    entry.slots[0].port, entry.limits.drain
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from deploy import ports, topology
from deploy.slot import Slot
from overlay import profiles
from tools.cli import UserError
from tools.paths import REPO

DEFAULT = "sandbox"
FILE = Path(__file__).with_name("hosts.toml")
TRANSPORTS = ("local", "ssh")
ALGORITHMS = ("DDTREE", "DFLASH")
#: The target alone: for comparisons, never in an inventory.
NONE = "NONE"


@dataclass(frozen=True)
class Limits:
    """When the deployer stops waiting, and which accept length it takes for sound."""

    start: float = 300.0  # seconds until the server is healthy
    drain: float = 20.0  # seconds that running requests get at a stop
    answer: float = 180.0  # seconds for one generation, or for all probes
    accept_min: float = 1.0  # tokens a verify step; exclusive
    accept_max: float = 64.0  # inclusive
    speed_floor: float = 0.5  # times the tokens/s of the release before: a slower one is refused
    silence: float = 60.0  # seconds without its controller until a host goes back by itself


@dataclass(frozen=True)
class Entry:
    """One host, as its operator wants it."""

    name: str
    transport: str
    profile: str
    pair: str
    root: Path
    slots: tuple[Slot, ...]  # one a server
    scope: str = "full"  # what of the profile a release brings: code, abi, full
    algorithm: str = "DDTREE"
    budget: int = 22
    keep: int = 3
    server: tuple[tuple[str, Any], ...] = ()  # (flag without dashes, value), in the file's order
    limits: Limits = Limits()
    environment: tuple[tuple[str, str], ...] = ()  # of the server, in the file's order
    address: str | None = None  # a name that ~/.ssh/config knows, or a host name; None: the host's own name
    user: str | None = None
    ssh_port: int | None = None
    jump: str | None = None  # [user@]host[:port] on the way
    identity: str | None = None  # a private key's file
    sudo: bool = False  # the user is not root: the agent runs under `sudo -n`
    python: str = "/usr/bin/python3"  # the host's interpreter: of the system, or of an environment
    service: str = "sglang"  # name of the template unit

    @property
    def port(self) -> int:
        """The first server's HTTP port."""
        return self.slots[0].port

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that must be there: the slots' own, else as many as there are ranks; none without CUDA."""
        if not re.match(r"cu\d", self.profile):
            return ()
        given = tuple(gpu for slot in self.slots for gpu in slot.gpus)
        return given or tuple(range(sum(slot.tp for slot in self.slots)))

    @property
    def remote(self) -> bool:
        """Whether it is another machine."""
        return self.transport == "ssh"


_KINDS: dict[str, tuple[type, str]] = {
    "transport": (str, "a string"),
    "profile": (str, "a string"),
    "pair": (str, "a string"),
    "scope": (str, "a string"),
    "root": (str, "a path"),
    "port": (int, "a whole number"),
    "algorithm": (str, "a string"),
    "budget": (int, "a whole number"),
    "keep": (int, "a whole number"),
    "server": (dict, "a table"),
    "limits": (dict, "a table"),
    "environment": (dict, "a table"),
    "address": (str, "a string"),
    "user": (str, "a string"),
    "ssh-port": (int, "a whole number"),
    "jump": (str, "a string"),
    "identity": (str, "a path"),
    "sudo": (bool, "true or false"),
    "python": (str, "a path"),
    "service": (str, "a string"),
    "gpus": (list, "a list of GPU numbers"),
    "topology": (str, "a string"),
    "count": (int, "a whole number"),
    "instances": (list, "a list of tables"),
}
_SSH_ONLY = ("address", "user", "ssh-port", "jump", "identity", "sudo", "python", "service", "gpus", "topology", "scope")
_RANGES = {
    "ssh-port": (1, 65535),
    "port": (ports.LOWEST, ports.HIGHEST),
    "budget": (1, 1024),
    "keep": (1, 1000),
    "count": (1, 64),
}
_REQUIRED = ("transport", "profile", "pair", "root", "port")


def load(name: str | None = None, *, file: Path | None = None, port: str | None = None) -> Entry:
    """The entry of host `name`; `port` (text, as from the environment) overrides its port."""
    entries = select(name or DEFAULT, file=file, port=port, one=True)
    if len(entries) > 1:
        raise UserError(f"HOST names {len(entries)} hosts, and this is for one at a time", 2)
    return entries[0]


def select(names: str, *, file: Path | None = None, port: str | None = None, one: bool = False) -> list[Entry]:
    """The entries of hosts and groups, separated by commas; each host once. `one`: a group is not asked for."""
    hosts, groups = _read(file)
    chosen: dict[str, Entry] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        for host in (name,) if name in hosts or one else groups.get(name, (name,)):
            if host not in hosts:
                known = ", ".join(sorted(hosts)) or "none"
                also = f"; its groups: {', '.join(sorted(groups))}" if groups else ""
                raise UserError(f"{(file or FILE).name} has no host {host!r}; it has: {known}{also}", 2)
            if host not in chosen:
                chosen[host] = _entry(host, *hosts[host], port)
    if not chosen:
        raise UserError(f"HOST is {names!r}, must be hosts or groups of the inventory, separated by commas", 2)
    return list(chosen.values())


def every(*, file: Path | None = None) -> list[Entry]:
    """All hosts, in the files' order."""
    return [_entry(name, raw, place, None) for name, (raw, place) in _read(file)[0].items()]


def _read(file: Path | None) -> tuple[dict[str, tuple[dict[str, Any], _Place]], dict[str, tuple[str, ...]]]:
    """The hosts' tables and the groups; those of `hosts.local.toml` beside the file lie over the file's, key by key."""
    file = file or FILE
    local = file.with_name("hosts.local.toml")
    hosts: dict[str, tuple[dict[str, Any], _Place]] = {}
    groups: dict[str, tuple[Any, _Place]] = {}
    for part in (file, local) if local.is_file() else (file,):
        try:
            text = part.read_text(encoding="utf-8")
            document = tomllib.loads(text)
        except OSError as error:
            raise UserError(f"the inventory {part} can't be read: {error.strerror}", 2) from None
        except ValueError as error:  # of TOML, or of UTF-8
            raise UserError(f"{part}: {error}", 2) from None
        for key in document:
            if key not in ("hosts", "groups"):
                raise UserError(f"{part.name}: unknown table [{key}]; hosts are [hosts.NAME], groups are in [groups]", 2)
        if not isinstance(document.get("hosts", {}), dict):
            raise UserError(f"{part.name}: hosts must be tables, [hosts.NAME]", 2)
        for name, raw in document.get("hosts", {}).items():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or not isinstance(raw, dict):
                raise UserError(f"{part.name}: {name!r} is no host: a host is a table [hosts.NAME]", 2)
            under, below = hosts.get(name, ({}, None))
            hosts[name] = (_over(under, raw), _Place(part, text, below))
        given = document.get("groups", {})
        if not isinstance(given, dict):
            raise UserError(f"{part.name}: groups must be a table, [groups]", 2)
        groups |= {name: (members, _Place(part, text)) for name, members in given.items()}
    return hosts, {name: _group(name, members, place, hosts) for name, (members, place) in groups.items()}


def _group(name: str, members: Any, place: _Place, hosts: dict[str, Any]) -> tuple[str, ...]:
    if name in hosts or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise place.error("groups", name, "is a host's name" if name in hosts else "is no name for a group")
    if not isinstance(members, list) or not members or not all(isinstance(host, str) for host in members):
        raise place.error("groups", name, f"is {members!r}, must be a list of hosts' names")
    for host in members:
        if host not in hosts:
            raise place.error("groups", name, f"has {host!r}, which is no host; hosts: {', '.join(sorted(hosts))}")
    return tuple(members)


def _over(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {key: _over(under[key], value) if isinstance(value, dict) and isinstance(under.get(key), dict) else value
            for key, value in over.items()}  # fmt: skip
    return {**under, **both}


@dataclass(frozen=True)
class _Place:
    file: Path
    text: str
    below: _Place | None = None  # the file under this one

    def error(self, table: str, key: str, what: str, number: int | None = None) -> UserError:
        """The mistake of a key; `number`: in the list `[[table]]`, its table of that number, from 0."""
        if self.below and not self._has(table, key if number is None else ""):
            return self.below.error(table, key, what, number)
        one = "" if number is None else f"[{number}]"
        return UserError(f"{self.file.name}:{self._line(table, key, number)}: {table}{one}.{key}: {what}", 2)

    def _has(self, table: str, key: str) -> bool:
        value: Any = tomllib.loads(self.text)
        for part in filter(None, [*table.split("."), key]):
            value = value.get(part) if isinstance(value, dict) else None
        return value is not None

    def _line(self, table: str, key: str, nth: int | None = None) -> int:
        """The line of `key` in `[table]`, or in the nth `[[table]]`; the table's own line where the key is not written."""
        inside, found, left = False, 1, nth or 0
        heads = (f"[{table}]", f"[{table}.{key}]", f"[[{table}.{key}]]") if nth is None else (f"[[{table}]]",)
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.lstrip().startswith("["):
                inside = line.split("#")[0].strip() in heads
                if inside and nth is not None:
                    inside, left = left == 0, left - 1
                found = number if inside else found
            elif inside and re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
                return number
        return found


def _local_root(root: str, place: _Place, table: str) -> Path:
    path = REPO / os.path.expanduser(root)
    # The nearest that is there: a folder can be made in a folder only.
    if "\0" in root or not next(part for part in (path, *path.parents) if os.path.lexists(part)).is_dir():
        raise place.error(table, "root", f"is {root!r}, must be a folder, or where one can be made")
    return path


def _remote_root(root: str, place: _Place, table: str) -> Path:
    path = Path(root)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3 or re.search(r"[\s%$'\"]", root):
        raise place.error(table, "root", f"is {root!r}, must be a plain absolute path on the host, such as /opt/sglang")
    return path


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
        raise place.error(table, "transport", f"is {raw['transport']!r}, must be one of {', '.join(TRANSPORTS)}")
    for key in _SSH_ONLY if raw["transport"] == "local" else ():
        if key in raw:
            raise place.error(table, key, 'is for hosts with transport = "ssh"')
    if raw.get("scope", "full") not in profiles.SCOPES:
        raise place.error(table, "scope", f"is {raw['scope']!r}, must be one of {', '.join(profiles.SCOPES)}")
    if raw.get("algorithm", "DDTREE") not in ALGORITHMS:
        raise place.error(table, "algorithm", f"is {raw['algorithm']!r}, must be one of {', '.join(ALGORITHMS)}")
    server = raw.pop("server", {})
    for flag, value in server.items():
        if not isinstance(value, (str, int, float, bool)) or not re.fullmatch(r"[a-z][a-z0-9-]*", flag):
            raise place.error(f"{table}.server", flag, "must be a flag's name without dashes and a plain value")
    tp = _tensor_parallel(server, place, f"{table}.server")
    limits = _limits(raw.pop("limits", {}), place, f"{table}.limits")
    environment = raw.pop("environment", {})
    for key, value in environment.items():
        if not isinstance(value, str) or "\n" in value or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise place.error(f"{table}.environment", key, "must be a variable's name and one line of text")
    if raw["transport"] == "local":
        raw["root"] = _local_root(raw["root"], place, table)
    else:
        raw["root"] = _remote_root(raw["root"], place, table)
    gpus = raw.pop("gpus", [])
    if not topology.different(gpus):
        raise place.error(table, "gpus", "must be different GPU numbers, such as [0, 1]")
    if "service" in raw and not re.fullmatch(r"[a-z][a-z0-9-]*", raw["service"]):
        raise place.error(table, "service", f"is {raw['service']!r}, must be small letters, digits and dashes")
    if "python" in raw and not raw["python"].startswith("/"):
        raise place.error(table, "python", "must be an absolute path on the host")
    raw["ssh_port"] = raw.pop("ssh-port", None)  # Entry has no dashes
    if port:
        if not port.isdecimal() or not ports.LOWEST <= int(port) <= ports.HIGHEST:
            raise UserError(f"PORT is {port!r}, must be a number from {ports.LOWEST} to {ports.HIGHEST}", 2)
        raw["port"] = int(port)
    lists = {"server": tuple(server.items()), "environment": tuple(environment.items())}
    slots = _slots(raw, tuple(gpus), tp, place, table)
    return Entry(name=name, limits=limits, slots=slots, **lists, **raw)


def _slots(raw: dict[str, Any], gpus: tuple[int, ...], tp: int | None, place: _Place, table: str) -> tuple[Slot, ...]:
    """The slots of an entry; takes their keys out of it."""

    def wrong(key: str, what: str, number: int | None = None) -> UserError:
        return place.error(table if number is None else f"{table}.instances", key, what, number)

    port, given = raw.pop("port"), {key: raw.pop(key) for key in ("topology", "count", "instances") if key in raw}
    return topology.slots(given, port, gpus, tp, wrong)


def _tensor_parallel(server: dict[str, Any], place: _Place, table: str) -> int | None:
    """Take the tensor parallelism out of the server's flags: it is the slots'."""
    for flag in topology.OWN:
        if flag in server:
            raise place.error(table, flag, "is not a flag to set here: the host's port, gpus and topology decide it")
    found = [(flag, server.pop(flag)) for flag in topology.TP if flag in server]
    for flag, value in found:
        if type(value) is not int or not 1 <= value <= 64 or value != found[0][1]:
            raise place.error(table, flag, f"is {value!r}, must be one number from 1 to 64")
    return found[0][1] if found else None


def _limits(raw: dict[str, Any], place: _Place, table: str) -> Limits:
    known = {field.name.replace("_", "-"): field.name for field in fields(Limits)}
    for key, value in raw.items():
        if key not in known:
            raise place.error(table, key, f"unknown key; known: {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise place.error(table, key, f"is {value!r}, must be a number above 0")
    return Limits(**{known[key]: float(value) for key, value in raw.items()})


def _check(place: _Place, table: str, key: str, value: object, kind: type, words: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise place.error(table, key, f"is {value!r}, must be {words}")
    low, high = _RANGES.get(key, (None, None))
    if low is not None and not low <= value <= high:
        raise place.error(table, key, f"is {value}, must be from {low} to {high}")
