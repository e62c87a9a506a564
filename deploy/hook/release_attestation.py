"""Records which `sglang` code a process runs: the sha256 of the very bytes that each module is compiled from.

Loaded by a release's `sitecustomize` in every process, before any `sglang` module. For these modules byte code caches are
neither read nor written, so what is hashed is what runs. Another hook that rewrites sources as they load (the CPU
overlay's) is composed with, not replaced: its loader reads through the same method, and what it reads is hashed.

One JSON document a line in `$SGLANG_ATTEST_DIR/<pid>.jsonl`: first the process, then its modules. Standard library only.
"""

import hashlib
import json
import os
import sys
from importlib.machinery import SourceFileLoader

PACKAGE = "sglang"


class Recorder:
    """A finder in front of all others: takes the spec that they give and watches its loader read."""

    def __init__(self, folder):
        self.folder = folder
        self.seen = set()

    def find_spec(self, name, path=None, target=None):
        """The others' spec, with a loader that records; None for what is not ours."""
        if name != PACKAGE and not name.startswith(PACKAGE + "."):
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if isinstance(spec.loader, SourceFileLoader):
                        self.watch(spec.loader, name)
                    return spec
        return None

    def watch(self, loader, name):
        """Let `loader` compile from its source, and record what it reads."""
        read = loader.get_data

        def get_data(path):
            data = read(path)
            if path == loader.path:
                self.record(module=name, file=path, sha256=hashlib.sha256(data).hexdigest())
            return data

        def path_stats(path):
            raise OSError("attested modules have no byte code cache")

        loader.get_data, loader.path_stats = get_data, path_stats

    def record(self, **what):
        """Append one line, once a process; a fork writes to a file of its own."""
        line = json.dumps(what)
        if (os.getpid(), line) not in self.seen:
            self.seen.add((os.getpid(), line))
            with open(os.path.join(self.folder, f"{os.getpid()}.jsonl"), "a") as file:
                file.write(line + "\n")


def install():
    """Start recording in this process, if the environment names a folder."""
    folder = os.environ.get("SGLANG_ATTEST_DIR")
    if folder:
        recorder = Recorder(folder)
        recorder.record(pid=os.getpid(), parent=os.getppid(), argv=sys.orig_argv[:6])
        sys.meta_path.insert(0, recorder)
