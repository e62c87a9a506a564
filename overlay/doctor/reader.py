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

from overlay.doctor import host, tree, wire


def main(arguments: list[str]) -> None:
    """Read the site root that is named, or this interpreter's own, and write its facts."""
    named = [one for one in arguments if one != "--hashes"]
    path = Path(named[0] if named else sysconfig.get_path("purelib"))
    try:
        site = tree.site_of(path) if path.is_dir() else None
    except OSError as error:
        sys.exit(f"{path} can't be read ({error.strerror})")
    if site is None:
        sys.exit(f"{path} is not a site root (no *.dist-info) and not a virtual environment (no pyvenv.cfg)")
    facts = tree.read(site, hashes="--hashes" in arguments)
    facts = dataclasses.replace(facts, host=host.read(Path(facts.root), os.environ))
    sys.stdout.buffer.write(zlib.compress(json.dumps(wire.encode(facts)).encode(), 1))


if __name__ == "__main__":
    main(sys.argv[1:])
