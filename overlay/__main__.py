"""`python -m overlay`: build a profile's site, renew its lock, examine an environment, explain an error."""

from __future__ import annotations

import argparse
import json

from overlay import lock, profiles, wheelhouse
from overlay import site as sites
from overlay import solver_command as comparing
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


def house(arguments: argparse.Namespace) -> int:
    """Fetch the profile's wheels by their hashes, and unpack them to a site root."""
    built = wheelhouse.build(arguments.profile, arguments.python, arguments.scope)
    if arguments.json:
        wheels = [str(wheel) for wheel in built.wheels]
        print(json.dumps({"root": str(built.root), "python": built.python, "digest": built.digest, "wheels": wheels}))
    else:
        said = f"{len(built.wheels)} packages for Python {built.python}"
        out.print(f"overlay {arguments.profile}: {said}, {built.root}", markup=False)
    return 0


def renew(arguments: argparse.Namespace) -> int:
    """Resolve the profile's requirements anew, write its locks, and say what changed."""
    for profile in profiles.load(arguments.profile).each_python():
        before = lock.read(profile.lock) if profile.lock.exists() else ()
        with err.status(f"overlay {profile.name}: resolving for Python {profile.python}"):
            pins = lock.renew(profile)
        changed = lock.changes(before, pins)
        out.print(f"{profile.lock.name}: {len(pins)} packages, " + (f"{len(changed)} changed" if changed else "nothing changed"))
        for line in changed if before else ():
            out.print(f"  {line}", markup=False)
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
    verb = verbs.add_parser("wheelhouse", help=house.__doc__, description=house.__doc__)
    verb.add_argument("profile", help="a profile of overlay/profiles")
    verb.add_argument("--python", metavar="3.12", help="which of the profile's Pythons (default: its first)")
    verb.add_argument("--scope", choices=profiles.SCOPES[1:], default="full", help="what is bound to torch and CUDA, or all")
    verb.add_argument("--json", action="store_true", help="print the site's root, Python, digest and wheels as JSON")
    verb.set_defaults(command=house)
    examining.add(verbs)
    comparing.add(verbs)
    arguments = parser.parse_args()
    return arguments.command(arguments)


if __name__ == "__main__":
    run(main)
