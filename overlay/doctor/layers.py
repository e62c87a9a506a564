"""One import root in front of another, as a release's site lies before a host's own packages: what the engine would meet.

Python takes a package from the first root that has it. torch's libraries look for CUDA by their path relative to torch's own
root, so with a torch in front nothing of NVIDIA's behind it counts. Standard library only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from overlay.doctor.facts import Facts, Library

#: Names that a package had before, on hosts that still have it.
OLD_NAMES = {"sglang-kernel": ("sgl-kernel",)}


def over(front: Facts, base: Facts, code: Iterable[str] = ()) -> Facts:
    """The facts of `base` as they are behind `front`. `code`: packages that are in front without metadata of their own."""
    names = {one.name for one in front.distributions} | set(code)
    gone = names | {old for name in names for old in OLD_NAMES.get(name, ())}
    whole = "torch" in names
    kept = [one for one in base.distributions if one.name not in gone and not (whole and _bound(one.name))]
    folders = {entry.path.split("/")[0] for one in front.distributions for entry in one.record or ()} | set(code)
    hidden = {entry.path for one in base.distributions if one not in kept for entry in one.record or ()}

    def stays(one: Library) -> bool:
        return one.path not in hidden and one.owner not in gone and one.path.split("/")[0] not in folders

    return dataclasses.replace(
        base,
        kind=base.kind if front.kind == "tree" else "lock",
        root=front.root,
        distributions=(*front.distributions, *kept),
        libraries=(*front.libraries, *filter(stays, base.libraries)) if front.kind == "tree" else (),
        labels={**{name: text for name, text in base.labels.items() if name not in names}, **front.labels},
        cuda=front.cuda if whole else base.cuda,
        links={**{path: to for path, to in base.links.items() if path not in hidden}, **front.links},
        damage=(*front.damage, *(one for one in base.damage if one.path not in hidden)),
    )


def _bound(name: str) -> bool:
    return name.startswith(("nvidia-", "cuda-")) and name != "nvidia-ml-py"
