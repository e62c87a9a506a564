"""A release's start-up: the overlay's own first, then the attestation, which must see what the overlay's hook gives."""

try:
    import overlay_startup  # noqa: F401  the overlay's sitecustomize, under this name in a release
except ModuleNotFoundError as missing:
    if missing.name != "overlay_startup":
        raise

import release_attestation

release_attestation.install()
