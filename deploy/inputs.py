"""What a host should have: every input of a release, and the release id that is made from their contents.

The id says what runs, not when it was made: equal inputs give an equal id, on every machine that puts it at the same place.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import overlay.engine
import overlay.profiles
import patches.check
import patches.series
import patches.tree
import snapshot.manifest
import snapshot.tree
from deploy import brought, digest, kept, pairs, unit
from deploy.inventory import Entry
from deploy.layout import Layout
from deploy.slot import Slot
from tools.cli import UserError
from tools.paths import REPO, VERSION

#: What a server on another machine has of its user's environment.
_BARE = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
#: What a server on GPUs has beside that: models are local folders, and nothing of a user's own packages comes in.
_ON_GPU = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1"}

HOOK = Path(__file__).with_name("hook")


@dataclass(frozen=True)
class Change:
    """What one patch does to one file."""

    file: str
    added: int  # lines
    removed: int  # lines


@dataclass(frozen=True)
class Inputs:
    """Everything that a release is staged from, on this machine."""

    entry: Entry
    pair: pairs.Pair
    version: str
    tree: Path  # import root with the patched sglang/
    files: dict[str, str]  # expected sha256 of every file of it
    touched: dict[str, str | None]  # of these, the ones of the series, as they must be afterwards
    patches: tuple[tuple[str, tuple[Change, ...]], ...]  # patch name -> its changes, for people
    site: Path  # import root of the overlay
    python: Path
    shims: Path  # import root of the overlay's shims
    arguments: tuple[str, ...]  # that its servers share
    digests: dict[str, str]  # input -> digest

    @property
    def release(self) -> str:
        """The release id: 12 hex digits."""
        return hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()[:12]


def gather(entry: Entry) -> Inputs:
    """Make or find every input; slow only where something was never fetched, built or examined before.

    Raises:
        UserError: an input can't be had, `patches.check` finds anything in the series, or the doctor an error in the overlay.
    """
    return gather_all([entry])(entry)


def gather_all(entries: Sequence[Entry]) -> Callable[[Entry], Inputs]:
    """The inputs of several hosts; what they share is made once: the patched tree, and a profile that comes whole.

    A host whose own part can't be had keeps nobody back: the returned function raises its UserError when it is asked for.
    """
    code, sites = _patched(), brought.sites(entries)

    def inputs(entry: Entry) -> Inputs:
        site = sites[entry.name]
        if isinstance(site, UserError):
            raise site
        more = {"site": site.root, "python": site.python, "shims": REPO / "overlay" / entry.profile}
        digests = {**code["digests"], "overlay": site.digest}
        return assemble(entry, pairs.find(entry.pair), **{**code, **more, "digests": digests})

    return inputs


def _patched() -> dict[str, Any]:
    """The patched tree, made and checked, as parts of inputs."""
    where = patches.series.folder(VERSION)
    kept.once("series", _series_key(), lambda: patches.check.require(VERSION, where, lambda: snapshot.tree.pristine(VERSION)))
    pin, series = snapshot.manifest.load(VERSION), patches.series.load(VERSION)
    tree = patches.tree.build(VERSION)
    files = {**pin.files, **{path: sha for path, sha in series.post_images.items() if sha}}
    for path, sha in series.post_images.items():
        if sha is None:
            files.pop(path, None)
    return {
        "tree": tree.root,
        "files": files,
        "touched": dict(series.post_images),
        "patches": tuple(
            (patch.name, tuple(Change(file.path, file.added, file.removed) for file in patch.files)) for patch in series.patches
        ),
        "digests": {"snapshot": pin.wheel_sha256, "series": series.digest},
    }


def _series_key() -> str:
    """Of the patches and what checks them. The pinned tree counts by its manifest: what of it is used is verified then."""
    judged = [VERSION, digest.of_folders(REPO / "patches", REPO / "snapshot"), sys.version]
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def assemble(entry: Entry, pair: pairs.Pair, *, python: Path, shims: Path, digests: dict[str, str], **parts: Any) -> Inputs:
    """Inputs from their parts; adds the digests of what lies in this checkout and of how the server is started."""
    if entry.remote:  # the models travel with the release, and the interpreter is the host's
        arguments = unit.arguments(entry, pairs.Pair(pair.name, Path(unit.RELEASE, "models")))
        python = Path(entry.python)
    else:
        arguments = unit.arguments(entry, pair)
    settings = [str(python), *arguments, *map(str, entry.environment), [dataclasses.asdict(slot) for slot in entry.slots]]
    if entry.remote:
        settings += [entry.service, entry.limits.drain]
    own = {
        "shims": digest.of_folders(shims),
        "hook": digest.of_folders(HOOK),
        "models": pair.digest(),
        "arguments": hashlib.sha256(json.dumps(settings).encode()).hexdigest(),
    }
    return Inputs(entry, pair, VERSION, python=python, shims=shims, arguments=arguments, digests={**digests, **own}, **parts)


def environment(inputs: Inputs, layout: Layout, slot: Slot) -> dict[str, str]:
    """The environment of the release's server in that slot."""
    entry = inputs.entry
    on_cpu = overlay.profiles.load(entry.profile).engine == "cpu"
    base = overlay.engine.environment(layout.release(inputs.release) / "site") if on_cpu else _ON_GPU
    if entry.remote:  # nothing of this machine's
        base = {name: value for name, value in base.items() if name not in overlay.engine.INHERITED} | _BARE
    return unit.environment({**base, **dict(entry.environment)}, layout, slot, inputs.release)


def texts(inputs: Inputs, layout: Layout) -> dict[str, str]:
    """The release's units and environment: path under its folder -> contents."""
    entry, release = inputs.entry, inputs.release
    folder = layout.release(release)
    made = {f"units/{entry.service}@.service": unit.template(entry, layout.root)} if entry.remote else {}
    for slot in entry.slots:
        argv = [word.replace(unit.RELEASE, str(folder)) for word in unit.command(inputs.python, inputs.arguments, slot, release)]
        file = f"env/{slot.name}.env"
        made[file] = unit.environment_file(environment(inputs, layout, slot))
        if entry.remote:
            made[f"units/{slot.name}"] = unit.script(argv)
        else:
            document = unit.engine(argv, folder / file, entry, release)
            made[f"units/{slot.name}.json"] = json.dumps(document, indent=1) + "\n"
    return made
