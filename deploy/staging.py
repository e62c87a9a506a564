"""Lays out a release. It has its name only once it is whole, verified and on the disk; half a release is never seen.

What this checkout may still change (the patched tree, the shims) is copied, and its hashes are taken from the copies; the
overlay, which lies under a name made from its lock, is hard-linked, or copied to another file system. A release therefore
depends on nothing here, and costs little. Nothing in it is ever written again.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from deploy import digest, manifest, switch
from deploy.inputs import HOOK, Inputs, texts
from deploy.layout import Layout
from deploy.manifest import Manifest
from tools.cli import UserError

#: Bytes that stay free on the file system, whatever is written.
RESERVE = 256 << 20
#: The name of the overlay's own start-up module in a release, whose `sitecustomize` is the hook's.
OVERLAY_STARTUP = "overlay_startup.py"


def stage(inputs: Inputs, layout: Layout) -> Manifest:
    """Lay out the release, unless it is there. A `UserError` leaves nothing behind."""
    folder = layout.release(inputs.release)
    if there := manifest.load(folder):
        return there
    layout.releases.mkdir(parents=True, exist_ok=True)
    clean(layout)
    check_space(inputs, layout)
    temporary = layout.releases / f".new-{inputs.release}"
    try:
        made = _lay_out(inputs, layout, temporary)
        switch.flush(layout.root)
        if folder.exists():  # not whole, or it would have been taken above
            shutil.rmtree(folder)
        os.rename(temporary, folder)
        switch.fsync_folder(layout.releases)
    except OSError as error:
        raise UserError(f"the release can't be written under {layout.releases}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return made


def clean(layout: Layout) -> None:
    """Remove what an interrupted staging left."""
    for left in layout.releases.glob(".new-*"):
        shutil.rmtree(left)


def check_space(inputs: Inputs, layout: Layout) -> None:
    """A `UserError` if the release would not fit; before anything is written."""
    copied = sum(path.stat().st_size for root in (inputs.tree / "sglang", inputs.shims) for path in digest.files(root))
    linked, folders = measure(inputs.site)
    same = inputs.site.stat().st_dev == layout.releases.stat().st_dev
    need = copied + folders * 4096 + (0 if same else linked) + RESERVE
    disk = os.statvfs(layout.releases)
    free = disk.f_bavail * disk.f_frsize
    if free < need:
        raise UserError(f"{layout.releases} has {free >> 20} MiB free, the release needs {need >> 20} MiB: make room")


def _lay_out(inputs: Inputs, layout: Layout, temporary: Path) -> Manifest:
    site = temporary / "site"
    linked = link_tree(inputs.site, site)
    copy_tree(inputs.tree / "sglang", site / "sglang")
    files = {f"sglang/{name}": sha for name, sha in hashes(site / "sglang").items()}
    verify(files, inputs.files)
    for root, rename in ((inputs.shims, {"sitecustomize.py": OVERLAY_STARTUP}), (HOOK, {})):
        for path in digest.files(root):
            name = path.relative_to(root).as_posix()
            target = site / rename.get(name, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # never write through a link
            shutil.copy2(path, target)
            files[target.relative_to(site).as_posix()] = digest.of_file(target)
    made = describe(inputs, files, linked)
    _write_units(inputs, layout, temporary)
    shutil.copy2(inputs.pair.probes, temporary / "probes.json")
    (temporary / "manifest.json").write_bytes(manifest.dump(made))
    return made


def describe(inputs: Inputs, files: dict[str, str], linked: int) -> Manifest:
    """The release's manifest."""
    return Manifest(
        release=inputs.release,
        version=inputs.version,
        algorithm=inputs.entry.algorithm,
        budget=inputs.entry.budget,
        model=inputs.pair.name,
        slots=inputs.entry.slots,
        inputs=inputs.digests,
        files=files,
        touched=inputs.touched,
        linked=linked,
        scope=inputs.entry.scope,
    )


def _write_units(inputs: Inputs, layout: Layout, temporary: Path) -> None:
    for name in ("units", "env"):
        (temporary / name).mkdir()
    for name, text in texts(inputs, layout).items():
        (temporary / name).write_text(text)


def verify(files: dict[str, str], expected: dict[str, str]) -> None:
    """A `UserError` that names the first differences between what was staged and what the series gives."""
    odd = sorted(name for name in files.keys() | expected.keys() if files.get(name) != expected.get(name))
    if odd:
        some = ", ".join(odd[:5]) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
        raise UserError(f"the patched tree is not what the series gives, in {some}: delete .cache/tree and run it again")


def hashes(root: Path) -> dict[str, str]:
    """Relative path -> sha256 for the files under `root`."""
    return {path.relative_to(root).as_posix(): digest.of_file(path) for path in digest.files(root)}


def measure(root: Path) -> tuple[int, int]:
    """Bytes of the files under `root`, and the number of its folders."""
    size = number = 0
    for folder, _, names in os.walk(root):
        number += 1
        size += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    return size, number


def link_tree(source: Path, target: Path) -> int:
    """Hard-link the files under `source` to `target`; the number of them. Copies where the file systems differ."""
    number = 0
    for folder, folders, names in os.walk(source):
        into = target / os.path.relpath(folder, source)
        into.mkdir(parents=True, exist_ok=True)
        for name in names + [name for name in folders if os.path.islink(os.path.join(folder, name))]:
            link(os.path.join(folder, name), os.path.join(into, name))
            number += 1
    return number


def link(source: str, target: str) -> None:
    """Hard-link one file, or copy it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        shutil.copy2(source, target, follow_symlinks=False)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files under `source`, without byte code caches."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
