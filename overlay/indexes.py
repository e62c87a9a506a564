"""The package indexes that the user's pip is set up to reach, handed to uv and to the downloader.

Addresses may carry passwords, so they travel in the environment and never as arguments, and none is ever written down.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

#: uv's own choice takes a package from the first index that has it in any version; pip looks at all of them.
_AS_PIP = "unsafe-best-match"
_PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True)
class Indexes:
    """Where packages come from, as pip's settings have it."""

    main: str | None = None
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()  # folders and pages of wheels
    certificates: str | None = None
    offline: bool = False  # no index at all, only `links`

    def for_uv(self) -> dict[str, str]:
        """The environment in which uv looks where pip looks."""
        # uv takes all files of a version from the first index that has it, and an extra index may have a few of them only.
        main = self.main or _PYPI
        chosen = {"UV_INDEX_STRATEGY": _AS_PIP, "UV_DEFAULT_INDEX": main}
        if self.extra:
            chosen["UV_INDEX"] = " ".join((main, *self.extra))
        if self.links:
            chosen["UV_FIND_LINKS"] = ",".join(self.links)
        if self.certificates:
            chosen["SSL_CERT_FILE"] = self.certificates
        # Choices that belong to the user's own use of uv and would change what is resolved.
        foreign = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_RESOLUTION", "UV_PYTHON")
        return {**{name: value for name, value in os.environ.items() if name not in foreign}, **chosen}

    def passwords(self) -> dict[str, tuple[str, str]]:
        """User and password of each index host whose address has them."""
        found = {}
        for address in filter(None, (self.main, *self.extra, *self.links)):
            parts = urlsplit(address)
            if parts.hostname and parts.username:
                found[parts.hostname] = (unquote(parts.username), unquote(parts.password or ""))
        return found


def of_pip() -> Indexes:
    """What `pip config list` says: the environment before the files."""
    return _of_pip(tuple(sorted(item for item in os.environ.items() if item[0].startswith("PIP_"))))


@functools.cache
def _of_pip(_environment: tuple[tuple[str, str], ...]) -> Indexes:
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse(done.stdout)


def parse(text: str) -> Indexes:
    """The settings in the lines of `pip config list`: `global.index-url='...'`, `:env:.find-links='...'`."""
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in text.splitlines():
            key, is_setting, value = line.partition("=")
            if is_setting and key.startswith(section):
                found[key.removeprefix(section)] = str(ast.literal_eval(value))
    return Indexes(
        main=found.get("index-url"),
        extra=tuple(found.get("extra-index-url", "").split()),
        links=tuple(found.get("find-links", "").split()),
        certificates=found.get("cert"),
        offline=found.get("no-index", "").lower() in ("1", "true", "yes", "on"),
    )
