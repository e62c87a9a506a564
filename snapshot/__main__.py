"""`python -m snapshot`: fetch the pinned tree, compare a tree or a host's package with the pin, pin another version."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from snapshot import host, manifest, tree, wheel
from snapshot.compare import compare
from tools.cli import UserError, out, run
from tools.files import short
from tools.paths import CACHE
from tools.transport import to

_STYLES = {"changed": "yellow", "missing": "red", "foreign": "magenta"}


def fetch(arguments: argparse.Namespace) -> int:
    """The pinned tree from its wheel; or a host's package, which is kept if it is the pin's or if `--keep` says so."""
    if arguments.host is None:
        root, pin = tree.pristine(), manifest.load()
        if arguments.json:
            print(json.dumps({"root": str(root), "version": pin.version, "files": len(pin.files)}))
        else:
            out.print(f"sglang {pin.version}: {len(pin.files):,} files, exactly as pinned, in {short(root)}")
        return 0
    with _pulled(arguments) as (pulled, installed):
        equal = _report(pulled, arguments, installed)
        place = host.home(arguments.host) / "snapshot"
        if not equal and not arguments.keep:
            raise UserError(f"{arguments.host}: not taken, since it is not the pin; KEEP=1 takes it all the same")
        host.keep(pulled, place)
    if not arguments.json:
        out.print(f"kept in {short(place)}" + ("" if equal else ", NOT the pin: nothing else here uses it"))
    return 0 if equal else 1


def check(arguments: argparse.Namespace) -> int:
    """The snapshot here, or a host's package as it is now, against the pin, file by file."""
    if arguments.host is not None:
        with _pulled(arguments) as (pulled, installed):
            return 0 if _report(pulled, arguments, installed) else 1
    root = tree.location()
    if not root.is_dir():
        raise UserError(f"there is no snapshot in {short(root)} yet; make one with: make snapshot")
    return 0 if _report(root, arguments) else 1


def pin(arguments: argparse.Namespace) -> int:
    """Write the manifest of a version, from a wheel file."""
    made = manifest.of_wheel(arguments.wheel, wheel.version(arguments.wheel))
    place = manifest.location(made.version)
    place.parent.mkdir(exist_ok=True)
    place.write_text(made.dump())
    out.print(f"sglang {made.version}: {len(made.files):,} files pinned in {short(place)}")
    return 0


@contextlib.contextmanager
def _pulled(arguments: argparse.Namespace) -> Iterator[tuple[Path, host.Installed]]:
    """A host's package in a temporary import root."""
    host.home(arguments.host)
    CACHE.mkdir(exist_ok=True)
    with to(arguments.host) as transport, tempfile.TemporaryDirectory(prefix=".pull.", dir=CACHE) as temporary:
        installed = host.locate(transport, arguments.python)
        host.pull(transport, installed, Path(temporary, "root"))
        yield Path(temporary, "root"), installed


def _report(root: Path, arguments: argparse.Namespace, installed: host.Installed | None = None) -> bool:
    """Print how the tree at `root` differs from the pin, or that it doesn't; true if it is the pin."""
    pin = manifest.load()
    comparison = compare(root, pin)
    other = installed is not None and installed.version != pin.version
    if arguments.json:
        found = {"version": pin.version, "same": len(comparison.same)}
        kinds = {kind: getattr(comparison, kind) for kind in _STYLES}
        print(json.dumps({**found, **kinds, "installed": installed and installed.named}, indent=1))
        return comparison.equal and not other
    subject = f"{arguments.host}: {installed.site}/{manifest.PACKAGE}" if installed else short(root)
    if other:
        out.print(f"{subject} is version {installed.version}, not {pin.version}", style="red", markup=False)
    for line in tree.describe(comparison, root, pin):
        kind, rest = line.split(" ", 1)
        out.print(Text(f"{kind:8}", _STYLES[kind]) + Text(rest))
    counts = ", ".join(f"{len(getattr(comparison, kind)):,} {kind}" for kind in ("same", *_STYLES))
    out.print(f"{subject} against sglang {pin.version}: {counts}", markup=False)
    return comparison.equal and not other


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m snapshot", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    for verb in (fetch, check):
        command = verbs.add_parser(verb.__name__, help=verb.__doc__, description=verb.__doc__)
        command.add_argument("--host", metavar="NAME", help="a host that ssh knows, or `local`")
        command.add_argument("--python", default="python3", metavar="PATH", help="the host's interpreter (default: python3)")
        command.add_argument("--json", action="store_true", help="machine-readable")
        command.set_defaults(run=verb)
    verbs.choices["fetch"].add_argument("--keep", action="store_true", help="keep a host's package that is not the pin, too")
    command = verbs.add_parser("pin", help=pin.__doc__, description=pin.__doc__)
    command.add_argument("wheel", type=Path, help="a wheel file of sglang")
    command.set_defaults(run=pin)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


if __name__ == "__main__":
    run(main)
