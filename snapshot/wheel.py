"""The pinned wheel: downloaded once by its hash, kept beside the snapshot, and checked at every use."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from snapshot.manifest import PACKAGE, Manifest
from tools.cli import UserError
from tools.files import sha256, short
from tools.paths import CACHE
from tools.transport import Local

#: Seconds for a download; the wheel of 0.5.11 has 7.3 MB.
DEADLINE = 600.0


def fetch(manifest: Manifest) -> Path:
    """The wheel file of `manifest`, downloaded if it is not there; its bytes have the pinned hash."""
    wheel = CACHE / "snapshot" / manifest.wheel
    if not wheel.exists():
        _download(manifest, wheel)
    found = sha256(wheel)
    if found != manifest.wheel_sha256:
        raise UserError(
            f"{short(wheel)} is not the pinned wheel: its sha256 is {found}, pinned is {manifest.wheel_sha256}; "
            "remove it to fetch it anew"
        )
    return wheel


def version(wheel: Path) -> str:
    """The version that the name of a wheel file of sglang states."""
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise UserError(f"{wheel} is not named as a wheel is ({error})") from error
    if name != PACKAGE or not wheel.is_file():
        raise UserError(f"{wheel} is not a wheel file of {PACKAGE}; pip download --no-deps {PACKAGE}==VERSION brings one")
    return str(version)


def _download(manifest: Manifest, wheel: Path) -> None:
    # The tags are the wheel's own: it is not installed here, so this machine's Python and platform don't matter.
    _, _, _, tags = parse_wheel_filename(manifest.wheel)
    interpreter, abi = next((tag.interpreter, tag.abi) for tag in tags)
    platforms = [option for tag in sorted(tags, key=str) for option in ("--platform", tag.platform)]
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".wheel.", dir=wheel.parent) as temporary:
        requirement = Path(temporary, "requirement.txt")
        requirement.write_text(f"{PACKAGE}=={manifest.version} --hash=sha256:{manifest.wheel_sha256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
        tagged = ["--python-version", interpreter.removeprefix("cp"), "--implementation", "cp", "--abi", abi, *platforms]
        only = ["--only-binary", ":all:", "--dest", temporary, "--requirement", str(requirement)]
        done = Local().run([*pip, *tagged, *only], timeout=DEADLINE)
        if done.rc:
            reasons = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("ERROR: ")]
            reason = reasons[-1].removeprefix("ERROR: ") if reasons else f"exit status {done.rc}"
            raise UserError(
                f"{manifest.wheel} could not be fetched; the first time needs a package index, or the wheel itself at "
                f"{short(wheel)} (pip: {reason})"
            )
        Path(temporary, manifest.wheel).replace(wheel)
