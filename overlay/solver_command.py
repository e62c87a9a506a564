"""`python -m overlay diff`: which packages of one host another one needs. Exit code 0 if there is such a set, 1 if not."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from overlay import profiles, solver
from overlay.doctor import command, locked, remote
from overlay.doctor.facts import Facts
from tools.cli import err, out


def add(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the room's command line."""
    verb = verbs.add_parser("diff", help=diff.__doc__, description=diff.__doc__)
    what = "a path, saved facts, or a host over SSH"
    verb.add_argument("--a", metavar="A", help=f"what B should be as: {what} (default: the profile's lock)")
    verb.add_argument("--b", metavar="B", required=True, help=f"what is to be mended: {what}")
    verb.add_argument("--profile", default="cu130", help="default: %(default)s")
    verb.add_argument("--python", default="python3", help="the hosts' interpreter")
    verb.add_argument("--json", action="store_true", help="one JSON document on standard output")
    verb.set_defaults(command=diff)


def diff(arguments: argparse.Namespace) -> int:
    """Say how two environments differ, and the smallest consistent set of packages that mends the second."""
    b = _facts(arguments.b, arguments.python)
    profile = profiles.load(arguments.profile)
    if arguments.a:
        a, name = _facts(arguments.a, arguments.python), arguments.a
    else:
        python = b.python if b.python in profile.pythons else profile.python
        profile = profiles.load(arguments.profile, python)
        a, name = locked.read(profile.lock), profile.lock.name
    found = solver.solve(a, b, profile, (name, arguments.b))
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(found), "errors": [one.as_json() for one in found.errors]}, indent=1))
    else:
        _show(found, (name, arguments.b))
    return 1 if found.refused else 0


def _facts(subject: str, python: str) -> Facts:
    path = Path(subject)
    with err.status(f"overlay: reading {subject}"):
        return command.gather(path) if path.exists() else remote.read(subject, python=python)


def _show(found: solver.Solution, names: tuple[str, str]) -> None:
    brought = dict(found.bring)
    width = max((len(row.name) for row in found.drift), default=0)
    if found.drift:
        out.print(f"{'':{width}}  {names[0]:24}{names[1]}", markup=False)
    for row in found.drift:
        mark = "  bring" if row.name in brought else ""
        out.print(f"{row.name:{width}}  {row.a or '-':24}{row.b or '-':24}{mark}".rstrip(), markup=False)
    for one in found.errors:
        out.print(f"{names[1]}: {one.rule}: {one.title}", markup=False)
    if found.refused:
        out.print(f"there is no set: {found.refused}", markup=False)
        out.print(f"what would do: {found.instead}", markup=False)
    elif found.bring:
        kind = "all that is bound to torch and CUDA" if found.scope == "abi" else "the rest may stay"
        out.print(f"bring {len(found.bring)} packages to {names[1]} ({kind}):", markup=False)
        out.print("  " + " ".join(f"{name}=={version}" for name, version in found.bring), markup=False)
    else:
        out.print(f"nothing to bring: {names[1]} has no error that a package of {names[0]} would mend", markup=False)
