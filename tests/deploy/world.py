"""A small world for the deployer: a stand-in for SGLang that is really started, supervised, asked and attested.

Its server is a few lines of standard library that answer as SGLang's does; what it says depends on its source, so that a
"patch" of it is a change of its files. Only the engine is a stand-in: releases, processes, ports and hooks are real.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from deploy import inputs, ports, rollout, staging
from deploy.inputs import Change, Inputs
from deploy.inventory import Entry, Limits
from deploy.pairs import Pair
from deploy.slot import Slot, single

TOKENS = 6
PROMPTS = ([3, 1, 4], [1, 5, 9, 2])

SERVER = """
import argparse, importlib, json, mmap, multiprocessing, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from sglang import behaviour, version

def main():
    parser = argparse.ArgumentParser()
    for name in ("port", "weight-version", "speculative-algorithm", "speculative-ddtree-budget"):
        parser.add_argument("--" + name)
    args, _ = parser.parse_known_args()
    if behaviour.CRASH or behaviour.CRASH_ON == int(args.port):
        sys.exit("this build crashes")
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    context.Process(target=work, args=(ready,), daemon=True).start()
    ready.wait()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *what): pass
        def do_GET(self):
            self.say({
                "/health": None,
                "/server_info": {"version": version.VERSION, "tp_size": 1, "speculative_algorithm": args.speculative_algorithm,
                                 "speculative_ddtree_budget": int(args.speculative_ddtree_budget or 0),
                                 "internal_states": [{"avg_spec_accept_length": 3.0}]},
                "/model_info": {"weight_version": behaviour.CLAIM or args.weight_version},
            }[self.path])
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/detokenize":
                return self.say({"text": [f" <{ids[0]}>" for ids in body["tokens"]]})
            count = body["sampling_params"]["max_new_tokens"]
            if "text" in body:
                return self.say(answer([1], count, " and so on"))
            if isinstance(body["input_ids"][0], int):
                return self.say(answer(body["input_ids"], count, ""))
            answers = [answer(ids, count, "") for ids in body["input_ids"]]
            if args.speculative_algorithm is None:
                for one in answers:
                    one["meta_info"]["spec_verify_ct"] = 0
            self.say(answers)
        def say(self, document):
            if behaviour.MUTE and self.command == "POST":
                time.sleep(600)
            data = b"" if document is None else json.dumps(document).encode()
            self.send_response(200); self.send_header("Content-Length", str(len(data))); self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", int(args.port)), Handler)
    print("serving", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()

def answer(ids, count, text):
    tokens = [(sum(ids) * 7 + i) % 97 for i in range(count)]
    if behaviour.LOSSY:
        tokens[2] += 1
    steps = count // behaviour.ACCEPT
    meta = {"completion_tokens": count, "spec_verify_ct": steps, "spec_accept_length": count / steps, "e2e_latency": 0.25}
    tree = {"tokens": [ids[-1], *tokens[:2]], "parents": [0, 0, 1], "scores": [0.0, -0.5, -1.0], "accepted": [1, 2]}
    meta["spec_ddtree_trace"] = [tree | {"bonus": tokens[2], "ms": {"draft": 1, "tree": 1, "verify": 2, "accept": 1}}]
    return {"text": text, "output_ids": tokens, "meta_info": meta}

def work(ready):
    import sglang.srt.model_executor.model_runner
    for name in behaviour.NEEDS:
        importlib.import_module(name)
    held = [mapped(name) for name in behaviour.MAPS]
    ready.set()
    while True:
        time.sleep(60)

def mapped(name):
    "A file of the first import root that has it, as the dynamic linker maps it."
    path = next(path for path in (os.path.join(root, name) for root in sys.path) if os.path.isfile(path))
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

if __name__ == "__main__":
    main()
"""


def behave(tree: Path, **how: object) -> Path:
    """Write the stand-in package into `tree`; `how` sets what its server does wrong."""
    defaults = {"CRASH": False, "CRASH_ON": 0, "LOSSY": False, "MUTE": False, "CLAIM": None, "ACCEPT": 3}
    defaults |= {"NEEDS": (), "MAPS": ()}
    package = tree / "sglang"
    worker = package / "srt" / "model_executor"
    worker.mkdir(parents=True, exist_ok=True)
    for folder in (package, package / "srt", worker):
        (folder / "__init__.py").write_text("")
    (worker / "model_runner.py").write_text("RUNS = True\n")
    (package / "version.py").write_text("VERSION = '0.5.11'\n")
    (package / "launch_server.py").write_text(SERVER)
    (package / "behaviour.py").write_text("".join(f"{name} = {value!r}\n" for name, value in {**defaults, **how}.items()))
    return tree


def die_after(steps: int) -> None:
    """Kill this process as soon as a rollout has ended that many of its steps."""
    do, left = rollout._do, itertools.count(steps - 1, -1)

    def dying(*args: Any) -> Any:
        error = do(*args)
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return error

    rollout._do = dying


def make_entry(root: Path, **more: object) -> Entry:
    """An inventory entry with short limits, but not so short that a busy machine meets them."""
    limits = Limits(start=20, drain=2, answer=20, accept_min=1.0, accept_max=8.0, speed_floor=1e-6)
    given = {"profile": "cpu", "pair": "pair", "slots": slots(), "limits": limits, **more}
    return Entry(name="sandbox", transport="local", root=root, **given)


def slots(*names: str, port: int | None = None) -> tuple[Slot, ...]:
    """The one slot of a host without a topology, or one a name; on ports that are free, or from `port` on."""
    taken = [port + i if port else ports.free() for i in range(len(names))]
    return (
        tuple(Slot(name, at, at + 1000) for name, at in zip(names, taken, strict=True))
        if names
        else (single(port or ports.free()),)
    )


def make_pair(folder: Path) -> Pair:
    """A pair whose models are a line of text, with probes that a sound server passes."""
    for model in ("target", "drafter"):
        (folder / model).mkdir(parents=True, exist_ok=True)
        (folder / model / "config.json").write_text(f'{{"is": "{model}"}}\n')
    rows = [{"input_ids": ids, "output_ids": [(sum(ids) * 7 + i) % 97 for i in range(TOKENS)]} for ids in PROMPTS]
    (folder / "probes.json").write_text(json.dumps({"target": "t", "new_tokens": TOKENS, "probes": rows}))
    return Pair("pair", folder)


def make_inputs(folder: Path, entry: Entry, **how: object) -> Inputs:
    """Inputs of a release whose server behaves as `how` says; `folder` holds tree, overlay, shims and pair."""
    tree = behave(folder / ("tree-" + "-".join(f"{k}{v}" for k, v in how.items())), **how)
    site, shims = folder / "site", folder / "shims"
    for root, name, text in ((site, "package/__init__.py", "ANSWER = 42\n"), (shims, "sitecustomize.py", "import shim\n")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (root / name).exists():
            (root / name).write_text(text)
    (shims / "shim.py").write_text("LOADED = True\n")
    files = {f"sglang/{name}": sha for name, sha in staging.hashes(tree / "sglang").items()}
    return inputs.assemble(
        entry,
        make_pair(folder / "pair"),
        tree=tree,
        files=files,
        touched={"sglang/behaviour.py": files["sglang/behaviour.py"]},
        patches=(("0001-behaviour.patch", (Change("sglang/behaviour.py", 2, 1),)),),
        site=site,
        python=Path(sys.executable),
        shims=shims,
        digests={"snapshot": "s", "series": str(sorted(how.items())), "overlay": "o"},
    )
