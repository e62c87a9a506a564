"""What a release brings of its overlay profile: all of it, what is bound to torch and CUDA, or nothing but the patched tree.

The rest is the host's, behind it on the import path. So the doctor judges both together, before anything is planned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy import kept
from deploy.inventory import Entry
from overlay import lock, profiles, solver, wheelhouse
from overlay import site as overlay_site
from overlay.doctor import gate, layers, remote, tree
from overlay.doctor.facts import Facts
from overlay.profiles import Profile
from overlay.site import Site
from tools.cli import UserError
from tools.paths import STORE
from tools.transport import Ssh

#: Of the patched tree: in front of the host's without metadata of its own.
CODE = ("sglang",)
#: Hosts asked at the same time.
_AT_ONCE = 16
#: Names shown at most.
_SHOWN = 5


def sites(entries: Sequence[Entry]) -> dict[str, Site | UserError]:
    """Each host's, by name, or why there is none. Hosts are asked at the same time, packages are unpacked one after the other."""
    shared: dict[str, Site] = {}
    asked = [entry for entry in entries if not whole(entry)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        bases = {entry.name: pool.submit(_ask, entry) for entry in asked}
        made: dict[str, Site | UserError] = {}
        for entry in entries:
            try:
                if entry in asked:
                    made[entry.name] = _beside(entry, bases[entry.name].result())
                else:
                    made[entry.name] = shared.get(entry.profile) or _whole(entry)
                    shared[entry.profile] = made[entry.name]
            except UserError as error:
                made[entry.name] = error
        return made


def site(entry: Entry) -> Site:
    """The import root that the release's packages come from. Raises UserError if one is not to be had, or the doctor says no.

    A profile for several Pythons is one for hosts: the host is asked which it has, and what else.
    """
    return _whole(entry) if whole(entry) else _beside(entry, _ask(entry))


def _whole(entry: Entry) -> Site:
    if entry.scope != "full":
        raise UserError(f"{entry.name}: the overlay profile {entry.profile} is brought whole: leave out scope", 2)
    built = overlay_site.build(entry.profile)
    kept.once(f"overlay-{entry.profile}", gate.key(built.root), lambda: gate.require(built.root))
    return built


def _ask(entry: Entry) -> Facts:
    """The packages that the host's own interpreter has."""
    way = Ssh(entry.address or entry.name, user=entry.user, port=entry.ssh_port, jump=entry.jump, identity=entry.identity)
    return remote.read(entry.name, python=entry.python, over=way)


def _beside(entry: Entry, base: Facts) -> Site:
    profile = profiles.load(entry.profile, base.python)
    root, digest = _root(profile, entry.scope)
    after = layers.over(tree.read(root), base, CODE)
    require(profile, entry, after)
    return Site(root, Path(entry.python), digest)


def whole(entry: Entry) -> bool:
    """Whether the profile comes as it is, whatever the host has."""
    return not entry.remote or len(profiles.load(entry.profile).pythons) == 1


def _root(profile: Profile, scope: str) -> tuple[Path, str]:
    """The unpacked packages of a scope, and a hash that says which they are."""
    if scope == "code":
        empty = STORE / "sites" / "nothing"
        empty.mkdir(parents=True, exist_ok=True)
        return empty, hashlib.sha256(b"code").hexdigest()
    built = wheelhouse.build(profile.name, profile.python, scope, store=STORE)
    return built.root, hashlib.sha256(f"{built.digest} {built.python} {scope}".encode()).hexdigest()


def require(profile: Profile, entry: Entry, after: Facts) -> None:
    """Pass a host's packages behind the release's, or raise UserError that says what is missing or does not go together."""
    there = {one.name for one in after.distributions}
    missing = sorted({pin.name for pin in lock.read(profile.lock)} - there - set(profile.code))
    odd = sorted(solver.unmet(after) - set(missing))
    if missing or odd:
        names = missing or odd
        said = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        why = "has no" if missing else "has another version than SGLang requires of"
        wider = "full" if missing else "abi"
        raise UserError(
            f"{entry.name}: {entry.python} {why} {said}, and a release of scope {entry.scope!r} does not bring it: "
            f'set scope = "{wider}" for {entry.name}'
        )
    gate.judge(after, f"{entry.name} with this release in front of its own packages")
