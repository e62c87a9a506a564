"""A release's start-up: the overlay's own first, then the attestation, which must see what the overlay's hook gives.

Python goes on after an error in this file. A release's process must not: without its shims it is another program, and
without the attestation nothing could be proved of it.
"""

import os
import traceback

try:
    try:
        import overlay_startup  # noqa: F401  the overlay's sitecustomize, under this name in a release
    except ModuleNotFoundError as missing:
        if missing.name != "overlay_startup":
            raise

    import release_attestation

    release_attestation.install()
except Exception:
    traceback.print_exc()
    os._exit(70)
