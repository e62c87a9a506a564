"""`python -m overlay`: build a profile's site, renew its lock, examine an environment, explain an error."""

from __future__ import annotations

import argparse
import json

from overlay import lock, profiles
from overlay import site as sites
from overlay.doctor import command as examining
from tools.cli import err, out, run


def site(arguments: argparse.Namespace) -> int:
    """Build the profile's site, or find the one that is there, and say where it is."""
    built = sites.build(arguments.profile)
    if arguments.json:
        print(json.dumps({"root": str(built.root), "python": str(built.python), "digest": built.digest}))
    else:
        out.print(f"overlay {arguments.profile}: {built.root}")
    return 0


def renew(arguments: argparse.Namespace) -> int:
    """Resolve the profile's requirements anew and write its lock."""
    profile = profiles.load(arguments.profile)
    before = set(lock.read(profile.lock)) if profile.lock.exists() else set()
    with err.status(f"overlay {profile.name}: resolving {len(profile.requirements)} requirements"):
        pins = lock.renew(profile)
    for pin in sorted(before ^ set(pins), key=lambda pin: (pin.name, pin not in before)):
        out.print(f"{'-' if pin in before else '+'} {pin.name}=={pin.version}")
    out.print(f"{profile.lock.name}: {len(pins)} packages" + ("" if before ^ set(pins) else ", nothing changed"))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m overlay", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="verb")
    for name, command in (("site", site), ("lock", renew)):
        verb = verbs.add_parser(name, help=command.__doc__, description=command.__doc__)
        verb.add_argument("profile", nargs="?", default="cpu", help="a profile of overlay/profiles (default: cpu)")
        verb.set_defaults(command=command)
        if command is site:
            verb.add_argument("--json", action="store_true", help="print the site's root, python and digest as JSON")
    examining.add(verbs)
    arguments = parser.parse_args()
    return arguments.command(arguments)


if __name__ == "__main__":
    run(main)
