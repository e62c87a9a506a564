"""Where things lie: the checkout, its own cache, and the user's cache for what is heavy.

`CACHE` (`.cache/` in the checkout) holds what belongs to this checkout: the pinned tree, patched trees,
the sandbox host. `STORE` (`${XDG_CACHE_HOME:-~/.cache}/sglang-ddtree`) holds what clones can share, keyed by the hash
of the lock that it was made from: virtual environments, unpacked wheels. Both can be deleted at any time.
"""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
CACHE = REPO / ".cache"
STORE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-ddtree"

#: The SGLang release that everything here is made for.
VERSION = "0.5.11"
