"""A release as what travels: every file by path, sha256 and size, and its bytes when they are asked for. Nothing is written here.

Byte code comes along, bound to its source's contents and not to a time, so that a file is the same on every host.
"""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deploy import digest, manifest, staging
from deploy.inputs import HOOK, Inputs, texts
from deploy.layout import Layout
from deploy.store import sha_of
from tools.paths import CACHE

_BLOCK = 1 << 20
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Item:
    """One file of a release."""

    sha: str
    size: int
    executable: bool = False
    source: Path | None = None
    data: bytes | None = None  # instead of a source

    def blocks(self, offset: int) -> Iterator[bytes]:
        """Its bytes from `offset` on."""
        if self.data is not None or self.source.suffix == ".pyc":
            yield (self.data if self.data is not None else _portable(self.source))[offset:]
            return
        with open(self.source, "rb") as file:
            file.seek(offset)
            while block := file.read(_BLOCK):
                yield block


@dataclass(frozen=True)
class Parcel:
    """`items`: path under the release's folder -> file."""

    release: str
    items: dict[str, Item]


def pack(inputs: Inputs, layout: Layout) -> Parcel:
    """The release of `inputs` for a host with that layout."""
    with _ONE_AT_A_TIME:  # several hosts are packed for at once; the first one's hashes serve them all
        overlaid = _overlay(inputs)
    items = {f"site/{name}": item for name, item in overlaid.items()}
    for name in [name for name in items if name.startswith("site/sglang/")]:
        del items[name]  # the patched tree's, whole
    own = {f"sglang/{name}": inputs.tree / "sglang" / name for name in staging.hashes(inputs.tree / "sglang")}
    for root, rename in ((inputs.shims, {"sitecustomize.py": staging.OVERLAY_STARTUP}), (HOOK, {})):
        for path in digest.files(root):
            name = path.relative_to(root).as_posix()
            own[rename.get(name, name)] = path
    files = {}
    for name, path in own.items():
        items[f"site/{name}"] = _item(path)
        items.pop("site/" + _byte_code(name), None)
        files[name] = items[f"site/{name}"].sha
    expected = {name: sha for name, sha in files.items() if name.startswith("sglang/")}
    staging.verify(expected, inputs.files)
    for model in (inputs.pair.target, inputs.pair.drafter):
        for path in digest.files(model):
            items[f"models/{path.relative_to(inputs.pair.folder).as_posix()}"] = _item(path)
    items["probes.json"] = _item(inputs.pair.probes)
    for name, text in texts(inputs, layout).items():
        items[name] = _text(text.encode())
    items["manifest.json"] = _text(manifest.dump(staging.describe(inputs, files, len(overlaid))))
    return Parcel(inputs.release, items)


def _text(data: bytes) -> Item:
    return Item(sha_of(data), len(data), data=data)


def _item(path: Path) -> Item:
    if path.suffix == ".pyc":
        data = _portable(path)
        return Item(sha_of(data), len(data), source=path)
    stat = path.stat()
    return Item(digest.of_file(path), stat.st_size, bool(stat.st_mode & 0o100), path)


def _byte_code(name: str) -> str:
    path = Path(name)
    return (path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc").as_posix()


def _portable(path: Path) -> bytes:
    """Byte code that counts for its source's contents, unchecked: a release is never written to."""
    code = path.read_bytes()
    source = Path(importlib.util.source_from_cache(str(path))).read_bytes()
    return code[:4] + (1).to_bytes(4, "little") + importlib.util.source_hash(source) + code[16:]


def _overlay(inputs: Inputs) -> dict[str, Item]:
    """The overlay's files; their hashes are taken once and kept, since a site never changes under its name."""
    kept = CACHE / "deploy" / f"overlay-{inputs.digests['overlay'][:16]}.json"
    root = inputs.site
    try:
        known = json.loads(kept.read_text())
        if known["root"] == str(root):
            return {name: Item(sha, size, x, root / name) for name, (sha, size, x) in known["files"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    names = []
    for folder, _, found in os.walk(root, followlinks=True):
        for name in found:
            path = Path(folder, name)
            if path.suffix != ".pyc" or ("__pycache__" in path.parts and _has_source(path)):
                names.append(path.relative_to(root).as_posix())
    with ThreadPoolExecutor(2) as pool:
        items = dict(zip(names, pool.map(lambda name: _item(root / name), names), strict=True))
    kept.parent.mkdir(parents=True, exist_ok=True)
    temporary = kept.with_suffix(f".{os.getpid()}")
    files = {name: (item.sha, item.size, item.executable) for name, item in items.items()}
    temporary.write_text(json.dumps({"root": str(root), "files": files}))
    temporary.replace(kept)
    return items


def _has_source(path: Path) -> bool:
    try:
        return Path(importlib.util.source_from_cache(str(path))).is_file()
    except (ValueError, NotImplementedError):
        return False
