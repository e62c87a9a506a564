"""`python -m tools.bench run|compare`: measure a host's algorithms and draw a page of it; compare two such measurements."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from deploy import inventory
from tools import cli
from tools.bench import compare, document, run
from tools.cli import UserError


def parser() -> argparse.ArgumentParser:
    """Sub-commands and their options."""
    top = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    commands = top.add_subparsers(dest="verb", required=True)
    text = "no speculation, DFLASH and DDTREE on the same host and flags; on a host over SSH only what serves, unless --all"
    command = commands.add_parser("run", help=text, description=text)
    command.add_argument("--host", default=inventory.DEFAULT, help="a host of the inventory (default: %(default)s)")
    command.add_argument("--inventory", type=Path, default=inventory.FILE, help="default: deploy/hosts.toml")
    command.add_argument("--all", action="store_true", help="take a host over: drain it, run every server in turn, bring it back")
    command.add_argument("--batches", type=numbers(1, 4096), default=[1, 4, 8], help="batch sizes (default: 1,4,8)")
    command.add_argument("--temperatures", type=numbers(0.0, 100.0), default=[0.0, 1.0], help="default: 0,1")
    command.add_argument("--budgets", type=numbers(1, 1024), default=[15, 22, 64], help="DDTREE's (default: 15,22,64)")
    command.add_argument("--rounds", type=one(1, 30), default=5, help="of each cell, after one that does not count (default: 5)")
    command.add_argument("--prompts", type=one(1, 4096), default=8, help="of the pair's own, in each round (default: 8)")
    command.add_argument("--tokens", type=one(2, 65536), default=24, help="new ones for each prompt (default: 24)")
    command.add_argument("--out", type=Path, help="where to write, without suffix (default: .cache/bench/HOST-DATE-TIME)")
    command.add_argument("--json", action="store_true", help="print the document instead of the tables")
    text = "two measurements side by side, and which differences are more than chance"
    command = commands.add_parser("compare", help=text, description=text)
    command.add_argument("--a", type=Path, help="the JSON file of a measurement")
    command.add_argument("--b", type=Path, help="of the other one")
    command.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return top


def one(low: int, high: int):
    """A parser of one whole number."""

    def parse(text: str) -> int:
        if not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def numbers(low: float, high: float):
    """A parser of different numbers with commas between; whole ones if `low` is one."""
    kind = type(low)

    def parse(text: str) -> list:
        try:
            found = [kind(part) for part in text.split(",")]
        except ValueError:
            found = []
        if not found or len(set(found)) != len(found) or not all(low <= number <= high for number in found):
            what = "whole numbers" if kind is int else "numbers"
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of different {what} from {low:g} to {high:g}, such as 1,4")
        return found

    return parse


def main() -> int:
    """Run one command; returns the exit code."""
    args = parser().parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):  # like ^C: a host that was taken over is brought back
        signal.signal(ending, signal.default_int_handler)
    if args.verb == "compare":
        if args.a is None or args.b is None:
            raise UserError("two measurements are needed, the JSON files of two runs: A=one.json B=other.json", 2)
        return compare.run(document.load(args.a), document.load(args.b), json=args.json)
    entry = inventory.load(args.host, file=args.inventory, port=os.environ.get("PORT"))
    if args.all and not entry.remote:
        raise UserError("ALL=1 is for hosts over SSH: on this machine every algorithm is measured, beside what serves", 2)
    return run.run(entry, args)


if __name__ == "__main__":
    cli.run(main)
