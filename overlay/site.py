"""A profile's packages as one import root: whole, exactly as locked, or not there at all.

    site = build("cpu")
    subprocess.run([site.python, "-c", "import torch"], env={"PYTHONPATH": str(site.root)})

Sites lie in the user's cache under a name made from the lock's hash, so clones share them and a new lock makes a new
one. Building goes on under a temporary name, and the rename is the last thing that happens; a second process that
wants the same site waits for the first.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from overlay import lock, pip, profiles, python
from overlay.profiles import Profile
from tools.cli import err
from tools.paths import STORE

#: Sources that no engine imports: not worth compiling.
_RARE = r"/(transformers/models|tests|testing|torch/_inductor|torch/onnx|jedi|pygments/lexers)/"


@dataclass(frozen=True, slots=True)
class Site:
    """A profile's packages, ready to import."""

    root: Path  # import root; holds no sglang
    python: Path  # interpreter without packages of its own
    digest: str  # sha256 of the lock


def build(profile: str = "cpu") -> Site:
    """The profile's site, made at the first call (one to three minutes) and found at once afterwards.

    Raises UserError if Python or a package is not to be had; nothing is left half done.
    """
    chosen = profiles.load(profile)
    pins = lock.read(chosen.lock)
    digest = lock.digest(chosen.lock)
    place = STORE / "sites" / f"{chosen.name}-{digest[:12]}"
    site = Site(root=place / "site", python=place / "venv" / "bin" / "python", digest=digest)
    if not _whole(place, site):
        with alone(place):
            # Another process may have made it while this one waited.
            if not _whole(place, site):
                remove_leftovers(place)
                _make(chosen, pins, place, digest)
    return site


def _whole(place: Path, site: Site) -> bool:
    stamp = place / "lock"
    # The interpreter is a link: it dangles when the machine's Python has gone.
    return site.python.exists() and stamp.is_file() and stamp.read_text() == site.digest


def remove_leftovers(place: Path) -> None:
    """What builds that were killed left behind; to be called by the one that holds the site's lock."""
    for leftover in place.parent.glob(f".{place.name}.*/"):
        shutil.rmtree(leftover)


def _make(profile: Profile, pins: tuple[lock.Pin, ...], place: Path, digest: str) -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as temporary:
        made = Path(temporary) / "made"
        interpreter = python.make_environment(profile, made / "venv")
        with _progress(profile, len(pins)) as step:
            _install(profile, interpreter, made / "site", step)
            step("compiling")
            # A failure costs speed only: Python compiles what it imports.
            subprocess.run(
                [interpreter, "-m", "compileall", "-q", "-j", "0", "-x", _RARE, made / "site"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        (made / "lock").write_text(digest)
        if place.exists():
            shutil.rmtree(place)
        made.rename(place)
    err.print(f"overlay {profile.name}: ready, {len(pins)} packages in {time.monotonic() - started:.0f} s")


def _install(profile: Profile, interpreter: Path, root: Path, step) -> None:
    """Put the locked wheels into `root`. `step(word)` is called for each package found and each stage."""
    arguments = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile", "--progress-bar", "off")
    command = pip.command(interpreter, "install", "--target", str(root), *arguments, "-r", str(profile.lock))
    with (
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Collecting "):
                step(line.split()[1].split("==")[0])
            elif line.startswith("Installing "):
                step("unpacking")
        if process.wait() != 0:
            stderr.seek(0)
            raise pip.failure(stderr.read(), profile)


@contextmanager
def _progress(profile: Profile, packages: int) -> Iterator:
    """Shows what the call `step(word)` is told: a bar on a terminal, one line before the work elsewhere."""
    title = f"overlay {profile.name}"
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[word]}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        if not err.is_terminal:
            err.print(f"{title}: installing {packages} locked packages, once for this lock (one to three minutes) ...")
        task = progress.add_task(title, total=packages + 2, word="")
        yield lambda word: progress.update(task, advance=1, word=word)


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Hold the lock of one site: the kernel lets go of it when the process ends, however it ends."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f".{place.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            err.print(f"overlay: another process is making {place.name}; waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
