"""The command line: `python -m deploy plan|apply|rollback|status|stop|logs|record`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
from pathlib import Path

from deploy import inputs, inventory, show, verbs
from deploy.host import Host
from tools import cli
from tools.cli import UserError


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
        command.add_argument("--host", default=inventory.DEFAULT, help="a host of the inventory (default: %(default)s)")
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
    entry = inventory.load(args.host, file=args.inventory, port=os.environ.get("PORT"))
    if getattr(args, "profile", None):
        entry = dataclasses.replace(entry, profile=args.profile)
    if args.verb in ("record", "unlock") and entry.remote != (args.verb == "unlock"):
        raise UserError(f"`{args.verb}` is not for {entry.name}, a host with transport = {entry.transport!r}", 2)
    host = verbs.connect(entry)
    try:
        return _run(args, entry, host)
    finally:
        host.close()


def _run(args: argparse.Namespace, entry: inventory.Entry, host: Host) -> int:
    match args.verb:
        case "plan":
            return verbs.plan_only(host, inputs.gather(entry), json=args.json)
        case "apply":
            return verbs.apply(host, inputs.gather(entry), json=args.json)
        case "rollback":
            return verbs.rollback(host, args.to, json=args.json)
        case "status":
            return verbs.status(host, json=args.json)
        case "unlock":
            return verbs.unlock(host, json=args.json)
        case "stop":
            return verbs.stop(host, json=args.json)
        case "logs":
            return verbs.logs(host, args.lines, args.instance)
        case "record":
            from deploy import record

            return record.run(entry)
    raise AssertionError(args.verb)


if __name__ == "__main__":
    cli.run(main)
