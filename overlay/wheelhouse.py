"""Locked wheels on this machine, each under the hash of its bytes, and site roots unpacked from them.

    wheels/<sha256>/<file>.whl          whole and verified, or not there
    wheels/<sha256>/<file>.whl.part     what has come so far; the next run goes on from there

Downloads are the index's files by hash, so a lock gives the same bytes whatever index is asked. A site root is unpacked
under a temporary name, and the rename is the last thing that happens.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from overlay import download, lock, profiles, resolving, unpack
from overlay.lock import Pin
from overlay.profiles import Profile
from overlay.site import alone, remove_leftovers
from tools.cli import UserError, err
from tools.files import sha256
from tools.paths import STORE

#: Downloads at a time: one stream rarely fills a link, and more do not help.
_STREAMS = 4
#: Bytes that stay free on the file system, whatever is written.
_RESERVE = 1 << 30
#: An unpacked wheel takes this many times its size, measured for the cu130 profile.
_UNPACKED = 2.2


@dataclass(frozen=True, slots=True)
class House:
    """A profile's packages as a site root, for one Python and one scope."""

    root: Path  # import root, without the code that the patched tree brings
    wheels: tuple[Path, ...]  # those that are still on the disk
    digest: str  # sha256 of the lock
    python: str


def build(name: str, python: str | None = None, scope: str = "full", *, store: Path = STORE) -> House:
    """The profile's site root: fetched and unpacked at the first call, found at once afterwards.

    Raises UserError if a package is not to be had, is not what is locked, or two of them own a path with different bytes.
    """
    profile = profiles.load(name, python)
    pins = lock.read(profile.lock)
    brought = set(profile.select((pin.name for pin in pins), scope))
    if not brought:
        raise UserError(f"the scope {scope!r} of the overlay profile {name} brings no package: there is nothing to fetch")
    digest = lock.digest(profile.lock)
    place = store / "sites" / f"{name}-py{profile.python}-{scope}-{digest[:12]}"
    chosen = [pin for pin in pins if pin.name in brought]
    if not _whole(place, digest):
        wheels = fetch(profile, chosen, store=store)
        with alone(place):
            if not _whole(place, digest):  # another process may have made it meanwhile
                remove_leftovers(place)
                _make(profile, wheels, place, digest)
    kept = (file for pin in chosen for file in (store / "wheels" / pin.sha256).glob("*.whl"))
    return House(place / "site", tuple(kept), digest, profile.python)


def _whole(place: Path, digest: str) -> bool:
    stamp = place / "lock"
    return stamp.is_file() and stamp.read_text() == digest


def fetch(profile: Profile, pins: Iterable[Pin], *, store: Path = STORE) -> tuple[Path, ...]:
    """The pins' wheels, whole and of the locked hash, in the order of the pins; what is missing is downloaded.

    Raises UserError naming the package if one is nowhere, is another file, or the disk is too small for them.
    """
    pins = tuple(pins)
    folder = store / "wheels"
    found = {pin: there for pin in pins if (there := _present(folder, pin))}
    missing = [pin for pin in pins if pin not in found]
    if missing:
        with err.status(f"overlay {profile.name}: looking for {len(missing)} wheels"):
            wheels = {wheel.name: wheel for wheel in resolving.resolve(profile, _named(missing), closure=False)}
        for pin in missing:
            _same_file(pin, wheels.get(pin.name), profile)
        found |= _download(profile, {pin: wheels[pin.name] for pin in missing}, folder)
    return tuple(found[pin] for pin in pins)


def _named(pins: Iterable[Pin]) -> list[str]:
    return [f"{pin.name}=={pin.version}" for pin in pins]


def _present(folder: Path, pin: Pin) -> Path | None:
    """The wheel if it is there; its bytes are compared again, and one that has changed is removed."""
    for wheel in sorted((folder / pin.sha256).glob("*.whl")):
        if sha256(wheel) == pin.sha256:
            return wheel
        wheel.unlink()
    return None


def _same_file(pin: Pin, wheel: resolving.Wheel | None, profile: Profile) -> None:
    if wheel is None:
        raise UserError(f"the index has no {pin.name}=={pin.version}, which {profile.lock.name} pins")
    if wheel.sha256 != pin.sha256:
        raise UserError(
            f"the index has another file for {pin.name}=={pin.version} than {profile.lock.name} pins: {wheel.file} with sha256 "
            f"{wheel.sha256}, not {pin.sha256}; if that is wanted, renew the lock: make lock PROFILE={profile.name}"
        )


def _download(profile: Profile, wheels: dict[Pin, resolving.Wheel], folder: Path) -> dict[Pin, Path]:
    expected = sum(wheel.size or 0 for wheel in wheels.values())
    _check_space(folder, expected, f"{len(wheels)} wheels of the overlay profile {profile.name}")
    started, found = time.monotonic(), {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress,
        download.Session() as session,
        ThreadPoolExecutor(_STREAMS) as pool,
    ):
        if not err.is_terminal:
            err.print(f"overlay {profile.name}: downloading {len(wheels)} wheels, {expected / 1e9:.2f} GB ...")
        total = progress.add_task(f"overlay {profile.name}", total=expected or None)

        def one(wheel: resolving.Wheel) -> Path:
            task = progress.add_task(f"  {wheel.name}", total=wheel.size)
            try:
                return _one(wheel, folder / wheel.sha256, session, _Meter(progress, (task, total)))
            finally:
                progress.remove_task(task)

        # The largest first, so that none of them is left alone at the end.
        ordered = sorted(wheels, key=lambda pin: -(wheels[pin].size or 0))
        running = {pool.submit(one, wheels[pin]): pin for pin in ordered}
        try:
            for done in as_completed(running):
                found[running[done]] = done.result()
        except BaseException:
            session.stop()
            pool.shutdown(cancel_futures=True)
            raise
    seconds = time.monotonic() - started
    err.print(f"overlay {profile.name}: {len(wheels)} wheels, {expected / 1e9:.2f} GB, in {seconds:.0f} s")
    return found


@dataclass(frozen=True, slots=True)
class _Meter:
    """Tells bars how many bytes have come."""

    progress: Progress
    tasks: tuple[TaskID, ...]

    def __call__(self, count: int) -> None:
        for task in self.tasks:
            self.progress.update(task, advance=count)


def _one(wheel: resolving.Wheel, folder: Path, session: download.Session, came: _Meter) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / wheel.file
    part = folder / f"{wheel.file}.part"
    with part.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another process may be fetching the same
        if whole.is_file():
            return whole
        session.append(wheel.address, file, size=wheel.size, came=came, what=wheel.file)
        file.flush()
        os.fsync(file.fileno())
        got = sha256(part)
        if got != wheel.sha256:
            part.unlink()
            raise UserError(f"{wheel.file} came with sha256 {got}, not the locked {wheel.sha256}; it is not kept")
        part.rename(whole)
    return whole


def _make(profile: Profile, wheels: tuple[Path, ...], place: Path, digest: str) -> None:
    started = time.monotonic()
    _check_space(place.parent, int(sum(wheel.stat().st_size for wheel in wheels) * _UNPACKED), f"the unpacked {profile.name}")
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as temporary:
        made = Path(temporary) / "made"
        with err.status(f"overlay {profile.name}: unpacking {len(wheels)} wheels"):
            unpack.all_of(wheels, made / "site", profile.leave_out)
        (made / "lock").write_text(digest)
        if place.exists():
            shutil.rmtree(place)
        made.rename(place)
    err.print(f"overlay {profile.name}: {len(wheels)} packages unpacked in {time.monotonic() - started:.0f} s")


def _check_space(folder: Path, need: int, what: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < need + _RESERVE:
        raise UserError(
            f"{folder} has {free / 1e9:.1f} GB free, and {what} need {(need + _RESERVE) / 1e9:.1f} GB: make room, or set "
            "XDG_CACHE_HOME to a folder on a larger disk"
        )
