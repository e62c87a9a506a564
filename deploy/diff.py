"""What a new release changes on a host, for people: which inputs, and the lines of units and environment that differ. Pure."""

from __future__ import annotations

import difflib
import re

#: What stands for a release's id, which is in every path.
_ID = "<release>"
#: A variable whose value nobody should read over a shoulder.
_SECRET = re.compile(r"(\w*(?:TOKEN|KEY|SECRET|PASSWORD)\w*)=.*")


def lines(
    before: str, old: dict[str, str], digests: dict[str, str], after: str, new: dict[str, str], wanted: dict[str, str]
) -> list[str]:
    """Of the release `before` with the files `old` and the inputs' digests, and `after`. A line below another is indented."""
    changed = sorted(name for name in digests.keys() | wanted.keys() if digests.get(name) != wanted.get(name))
    found = [f"differs from {before} in: {', '.join(changed)}"] if changed else []
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            found.append(f"{name}: {'new' if name in new else 'no longer'}")
            continue
        one, two = (_words(text, release) for text, release in ((old[name], before), (new[name], after)))
        if one != two:
            found.append(name)
            shown = list(difflib.unified_diff(one, two, n=0, lineterm=""))[2:]
            found += ["  " + _SECRET.sub(r"\1=...", line) for line in shown if not line.startswith("@@")]
    return found


def _words(text: str, release: str) -> list[str]:
    """Its lines; a command line is one flag a line."""
    return text.replace(release, _ID).replace(" --", "\n--").splitlines()
