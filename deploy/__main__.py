"""The command line: `python -m deploy plan|apply|rollback|status|stop|logs|record`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

from deploy import fleet, inputs, inventory, show, verbs
from deploy.host import Host
from deploy.rollout import Watch
from deploy.verbs import Report
from tools import cli
from tools.cli import UserError

#: What may be done to several hosts at once.
SEVERAL = ("plan", "apply", "rollback", "status", "stop", "unlock")


def several(verb: str) -> str:
    return "; or several, and groups, separated by commas" if verb in SEVERAL else ""


def parser() -> argparse.ArgumentParser:
    """Sub-commands and their options."""
    top = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    commands = top.add_subparsers(dest="verb", required=True)
    for verb, text in {
        "plan": "what `apply` would do; changes nothing",
        "apply": "put the patched SGLang on the host, start it, prove that it serves",
        "rollback": "back to the previous release, through the same gates",
        "status": "what the host serves now",
        "stop": "stop the servers",
        "logs": "the end of each server's log",
        "hosts": "the inventory as a table",
        "unlock": "end the command that holds a host's lock, if it hangs",
        "record": "record a pair's probes anew, with the pinned tree and no speculation",
    }.items():
        command = commands.add_parser(verb, help=text, description=text)
        command.add_argument(
            "--host", default=inventory.DEFAULT, help="a host of the inventory (default: %(default)s)" + several(verb)
        )
        command.add_argument("--inventory", type=Path, default=inventory.FILE, help="default: deploy/hosts.toml")
        command.add_argument("--json", action="store_true", help="one JSON document on standard output")
        if verb in ("plan", "apply"):
            command.add_argument("--profile", help="another overlay profile than the inventory's")
        if verb == "rollback":
            command.add_argument("--to", metavar="RELEASE", help="default: the previous release")
        if verb == "logs":
            command.add_argument("--lines", type=int, default=50)
            command.add_argument("--instance", metavar="NAME", help="default: every instance")
    return top


def main() -> int:
    """Run one command; returns the exit code."""
    args = parser().parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):  # like ^C: a rollout takes back what it began
        signal.signal(ending, signal.default_int_handler)
    if args.verb == "hosts":
        return show.hosts(inventory.every(file=args.inventory), json=args.json)
    entries = inventory.select(args.host, file=args.inventory, port=os.environ.get("PORT"))
    if getattr(args, "profile", None):
        entries = [dataclasses.replace(entry, profile=args.profile) for entry in entries]
    for entry in entries:
        if args.verb in ("record", "unlock") and entry.remote != (args.verb == "unlock"):
            raise UserError(f"`{args.verb}` is not for {entry.name}, a host with transport = {entry.transport!r}", 2)
    if len(entries) > 1:
        if args.verb not in SEVERAL:
            raise UserError(f"`{args.verb}` is for one host at a time; HOST names {len(entries)}", 2)
        return fleet.run(entries, _work(args, entries), json=args.json)
    host = verbs.connect(entries[0])
    try:
        return _run(args, entries[0], host)
    finally:
        host.close()


def _work(args: argparse.Namespace, entries: list[inventory.Entry]) -> Callable[[Host, Watch], Report]:
    """What the command does to one host."""
    match args.verb:
        case "plan":
            wanted = inputs.gather_all(entries)
            return lambda host, _: verbs.planned(host, wanted(host.entry))
        case "apply":
            wanted = inputs.gather_all(entries)
            return lambda host, steps: verbs.applied(host, wanted(host.entry), steps)
        case "rollback":
            return lambda host, steps: verbs.rolled_back(host, args.to, steps)
        case "status":
            return lambda host, _: verbs.state(host)
        case "stop":
            return lambda host, _: verbs.stopped(host)
        case "unlock":
            return lambda host, _: verbs.unlocked(host)
    raise AssertionError(args.verb)


def _run(args: argparse.Namespace, entry: inventory.Entry, host: Host) -> int:
    match args.verb:
        case "apply":
            return verbs.apply(host, inputs.gather(entry), json=args.json)
        case "rollback":
            return verbs.rollback(host, args.to, json=args.json)
        case "logs":
            return verbs.logs(host, args.lines, args.instance)
        case "record":
            from deploy import record

            return record.run(entry)
    return verbs.tell(_work(args, [entry])(host, show.Steps(host)), json=args.json)


if __name__ == "__main__":
    cli.run(main)
