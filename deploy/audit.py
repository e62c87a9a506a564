"""What was done to a host, by whom and how it ended: one JSON document a line, appended whole, never rewritten."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from deploy.lock import who


def append(path: Path, event: dict[str, Any], by: dict[str, object] | None = None) -> None:
    """Add `event`, with the time and who did it (default: this process). One write, so lines of two writers don't mix."""
    line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **(by or who()), **event}) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
