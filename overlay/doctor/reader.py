"""The fact reader as a program of its own, for a host's interpreter (3.10 or newer): facts to standard output, packed.

    python3 -c '...' [SITE] [--hashes] < zip of this package

The standard library is all that it needs, and nothing is written on the host.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import sysconfig
import zlib
from pathlib import Path

from overlay.doctor import host, layers, tree, wire
from overlay.doctor.facts import Facts


def main(arguments: list[str]) -> None:
    """Read the site root that is named, or this interpreter's own, and write its facts."""
    named = [one for one in arguments if one != "--hashes"]
    hashes = "--hashes" in arguments
    if not named:
        facts = _own(hashes)
    else:
        path = Path(named[0])
        try:
            release = (path.parent / "manifest.json").is_file() and (path / "sglang").is_dir()
            site = path if release else tree.site_of(path) if path.is_dir() else None
        except OSError as error:
            sys.exit(f"{path} can't be read ({error.strerror})")
        if site is None:
            sys.exit(f"{path} is not a site root (no *.dist-info) and not a virtual environment (no pyvenv.cfg)")
        facts = tree.read(site, hashes=hashes)
        if release:  # its server has it first on its import path, and the interpreter's own packages behind it
            facts = layers.over(facts, _own(hashes), code=("sglang",))
    facts = dataclasses.replace(facts, host=host.read(Path(facts.root), os.environ))
    sys.stdout.buffer.write(zlib.compress(json.dumps(wire.encode(facts)).encode(), 1))


def _own(hashes: bool) -> Facts:
    """The packages of this interpreter; none, where it has no folder for them yet."""
    root = Path(sysconfig.get_path("purelib"))
    python = "{}.{}".format(*sys.version_info)
    if not root.is_dir():
        return Facts(kind="tree", root=str(root), python=python)
    return dataclasses.replace(tree.read(root, hashes=hashes), python=python)


if __name__ == "__main__":
    main(sys.argv[1:])
