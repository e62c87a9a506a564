"""`python -m overlay doctor` and `explain`: what is examined, how it is told, and the exit code (1 if an error stands)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from pathlib import Path

from overlay.doctor import explain as explaining
from overlay.doctor import host, known, locked, remote, rules, show, tree, wheels, wire
from overlay.doctor.facts import Facts, Gpu, Host
from overlay.doctor.finding import Severity
from tools.cli import UserError, err, out


def add(verbs: argparse._SubParsersAction) -> None:
    """Add both verbs to the room's command line."""
    verb = verbs.add_parser("doctor", help=doctor.__doc__, description=doctor.__doc__)
    subject = verb.add_mutually_exclusive_group()
    subject.add_argument("path", nargs="?", help="a site root, virtual environment, folder of wheels, lock, or saved facts")
    subject.add_argument("--profile", metavar="NAME", help="the site of an overlay profile, built if it is not there")
    verb.add_argument("--host", metavar="NAME", help="a host over SSH; the path, if given, is one there")
    verb.add_argument("--python", default="python3", help="the host's interpreter; without a path its packages are examined")
    verb.add_argument("--save", metavar="FILE", type=Path, help="also write the facts, for overlay-diff")
    verb.add_argument("--json", action="store_true", help="one JSON document on standard output")
    verb.add_argument("--hashes", action="store_true", help="compare every file's sha256 with RECORD's, not only its size")
    verb.add_argument("--no-host", action="store_true", help="leave out this machine: driver, GPUs, compilers, caches, paths")
    verb.add_argument("--gpu", action="append", default=[], metavar="sm_120", help="a GPU to check for, not this machine's")
    verb.add_argument("--pid", action="append", default=[], type=int, metavar="N", help="a running process (each rank) to check")
    verb.add_argument("--torch", choices=known.builds(), help="the torch to check kernels against, where the path has none")
    verb.set_defaults(command=doctor)
    verb = verbs.add_parser("explain", help=explain.__doc__, description=explain.__doc__)
    verb.add_argument("--json", action="store_true", help="one JSON document on standard output")
    verb.set_defaults(command=explain)


def doctor(arguments: argparse.Namespace) -> int:
    """Say what of an environment will break, and what mends it, without importing any of it."""
    facts, subject = _subject(arguments)
    facts = _told(facts, arguments)
    if arguments.save:
        arguments.save.write_text(json.dumps(wire.encode(facts)))
    found = rules.examine(facts)
    errors = sum(one.severity is Severity.ERROR for one in found)
    if arguments.json:
        document = {
            "root": facts.root,
            "kind": facts.kind,
            "torch": facts.version("torch"),
            "packages": len(facts.distributions),
            "libraries": len(facts.libraries),
            "errors": errors,
            "findings": [one.as_json() for one in found],
        }
        print(json.dumps(document, indent=1))
    else:
        show.findings(out, found)
        out.print(show.summary(facts, found, subject), markup=False)
    return 1 if errors else 0


def _subject(arguments: argparse.Namespace) -> tuple[Facts, str]:
    """The facts that are meant, and how they are called."""
    if arguments.host and arguments.host != "local":
        if arguments.profile or arguments.pid:
            raise UserError("--profile and --pid are of this machine, not of a host", code=2)
        with err.status(f"doctor: reading {arguments.host}"):
            facts = remote.read(arguments.host, arguments.path, arguments.python, hashes=arguments.hashes)
        return facts, f"{arguments.host}:{facts.root}"
    if not arguments.profile and not arguments.path:
        raise UserError("name what to examine: a path, --profile or --host", code=2)
    path = _profile(arguments.profile) if arguments.profile else Path(arguments.path)
    with err.status(f"doctor: reading {path}"):
        return gather(path, hashes=arguments.hashes, with_host=not arguments.no_host), str(path)


def gather(path: Path, *, hashes: bool = False, with_host: bool = True) -> Facts:
    """The facts of whatever `path` is. Raises UserError if it is nothing that the doctor knows."""
    try:
        if path.is_file() and path.suffix == ".json":
            return wire.decode(json.loads(path.read_text()))
        if path.is_file():
            facts = locked.read(path)
            if not facts.distributions:
                raise UserError(f"{path} has no line of the form name==version, so it is not a lock")
            return facts
        if path.is_dir():
            site = tree.site_of(path)
            if site is not None:
                facts = tree.read(site, hashes=hashes)
                return dataclasses.replace(facts, host=host.read(Path(facts.root), os.environ)) if with_host else facts
            if any(path.glob("*.whl")):
                return wheels.read(path)
    except ValueError as error:
        raise UserError(f"{path} can't be read ({error})") from error
    except (OSError, RuntimeError) as error:
        raise UserError(f"{path} can't be read ({getattr(error, 'strerror', None) or error})") from error
    if not path.exists():
        raise UserError(f"there is no {path}")
    raise UserError(
        f"{path} is not a site root (no *.dist-info), not a virtual environment (no pyvenv.cfg), and has no wheels; "
        "name one of these, or a lock"
    )


def _profile(name: str) -> Path:
    from overlay import profiles, site, wheelhouse  # building one needs pip and a lock; examining a path needs neither

    # A profile for several Pythons is one for hosts: this machine need not be able to run it.
    return wheelhouse.build(name).root if len(profiles.load(name).pythons) > 1 else site.build(name).root


def _told(facts: Facts, arguments: argparse.Namespace) -> Facts:
    """The facts with what the command line adds to them."""
    if arguments.torch and not facts.version("torch"):
        build = arguments.torch
        facts = dataclasses.replace(facts, labels={**facts.labels, "torch": build}, known_exports=known.exports(build))
    if arguments.gpu:
        gpus = tuple(_gpu(text) for text in arguments.gpu)
        facts = dataclasses.replace(facts, host=dataclasses.replace(facts.host or Host(), gpus=gpus))
    maps = {}
    for process in arguments.pid:
        try:
            maps[process] = Path(f"/proc/{process}/maps").read_text(errors="replace")
        except OSError as error:
            raise UserError(f"process {process} can't be looked at ({error.strerror})") from error
    return dataclasses.replace(facts, maps=maps)


def _gpu(text: str) -> Gpu:
    match = re.fullmatch(r"sm_?(\d{2,3})[af]?", text)
    if match is None:
        raise UserError(f"{text!r} is not a GPU; write it as sm_120", code=2)
    return Gpu(known.GPUS.get(int(match[1]), "this GPU"), int(match[1]))


def explain(arguments: argparse.Namespace) -> int:
    """Read a traceback from standard input, and say which rule it belongs to, the likely cause, and what to check."""
    if sys.stdin.isatty():
        err.print("paste the traceback, then Ctrl-D")
    found = explaining.explain(sys.stdin.read())
    if arguments.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    elif not found:
        out.print("no known error in it; `python -m overlay doctor PATH` examines the environment itself", markup=False)
    for one in found if not arguments.json else ():
        out.print(f"{one.rule}: {one.line}", markup=False)
        out.print(f"        cause   {one.cause}", markup=False)
        out.print(f"        check   {one.check}", markup=False)
    return 0 if found else 1
