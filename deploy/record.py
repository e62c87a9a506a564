"""Records a pair's probes: what the pinned, unpatched tree answers with the target alone, greedily.

The result is checked in beside the pair; it changes only when the pair does.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import overlay.engine
import overlay.site
import snapshot.tree
from deploy import digest, health, instance, pairs, ports, semantic, unit
from deploy.inventory import NONE, Entry
from deploy.pairs import Pair, Probes
from deploy.sandbox import Sandbox
from deploy.slot import ENGINE, single
from tools.cli import out
from tools.paths import VERSION

#: How many of the pair's prompts are probes, and how many tokens each continues.
PROBES, TOKENS = 8, 48


def run(entry: Entry) -> int:
    """Record the probes of the entry's pair, on its profile; whatever serves goes on."""
    pair = pairs.find(entry.pair)
    prompts = json.loads((pair.folder / "prompts.json").read_text())[:PROBES]
    site = overlay.site.build(entry.profile)
    roots = (snapshot.tree.pristine(VERSION), site.root)
    probes = Probes(digest.of_folders(pair.target), TOKENS, tuple(map(tuple, prompts)), ())
    with tempfile.TemporaryDirectory() as folder:
        host = Sandbox(dataclasses.replace(entry, root=Path(folder), slots=(single(ports.free()),), algorithm=NONE))
        answers = ask_target(host, pair, probes, site.python, overlay.engine.environment(*roots))
    rows = [
        {"input_ids": list(prompt), "output_ids": answer["output_ids"]} for prompt, answer in zip(prompts, answers, strict=True)
    ]
    document = {"target": probes.target, "new_tokens": TOKENS, "probes": rows}
    pair.probes.write_text(compact(document))
    out.print(f"{len(rows)} probes of {TOKENS} tokens: {pair.probes}")
    return 0


def ask_target(host: Sandbox, pair: Pair, probes: Probes, python: Path, env: dict[str, str]) -> list[dict]:
    """Start the target alone, ask the probes, stop it again."""
    root = host.root()
    (root / "env").write_text(unit.environment_file(env))
    argv = unit.command(python, unit.arguments(host.entry, pair), host.entry.slots[0], "plain")
    (root / "unit").write_text(json.dumps(unit.engine(argv, root / "env", host.entry, "plain")))
    try:
        instance.start(root / "unit", host.layout.run(ENGINE))
        health.wait(host, ENGINE)
        return host.ask(ENGINE, "/generate", semantic.question(probes), timeout=host.entry.limits.answer)
    except Exception:
        out.print(*host.log(ENGINE, 30), sep="\n", markup=False)
        raise
    finally:
        host.stop(ENGINE)


def compact(document: dict) -> str:
    """JSON with one probe a line, so that a change is seen where it is."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in document["probes"])
    head = {key: value for key, value in document.items() if key != "probes"}
    return json.dumps(head)[:-1] + f', "probes": [\n{rows}\n]}}\n'
