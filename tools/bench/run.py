"""One benchmark from start to page: servers in turn, progress, the two files, the tables."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from deploy import inputs, pairs, verbs
from deploy.inventory import Entry
from deploy.sandbox import Sandbox
from tools.bench import document, measure, page, servers
from tools.bench.measure import Load
from tools.bench.servers import Served, Setting
from tools.cli import UserError, err, out
from tools.files import short
from tools.paths import CACHE

#: How many requests' trees are shown, at each temperature.
TREES = 3

Tick = Callable[[str], None]


def run(entry: Entry, args: argparse.Namespace, gather: Callable[[Entry], inputs.Inputs] = inputs.gather) -> int:
    """Measure, write the JSON document and the page, show the tables."""
    load = load_of(entry, args)
    begin = time.time()
    base = args.out or CACHE / "bench" / f"{entry.name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(begin))}"
    _writable(base)
    wanted = servers.settings(sorted({*args.budgets}))
    number = 1 if entry.remote and not args.all else len(wanted)
    with progress(number * (2 + len(load.batches) * len(load.temperatures) * (load.rounds + 1))) as tick:
        measured = list(_everything(entry, load, gather, tick, wanted if args.all or not entry.remote else None))
    document.compare_outputs(measured)
    made = {
        "format": document.FORMAT,
        "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(begin)),
        "seconds": round(time.time() - begin, 1),
        "host": entry.name,
        "machine": None if entry.remote else platform.platform(),
        "pair": entry.pair,
        "load": {**dataclasses.asdict(load), "prompts": len(load.prompts)},
        "servers": measured,
    }
    files = write(made, base)
    if args.json:
        print(json.dumps(made))
    else:
        tables(made)
    err.print("written  " + "  ".join(short(file) for file in files), markup=False)
    return 0


def load_of(entry: Entry, args: argparse.Namespace) -> Load:
    """What the options ask for; a `UserError` if the pair or the server's flags can't give it."""
    pair = pairs.find(entry.pair)
    file = pair.folder / "prompts.json"
    if not file.is_file():
        raise UserError(f"the pair {entry.pair} has no prompts: {short(file)} must be a list of lists of token ids", 2)
    prompts = json.loads(file.read_text())
    if len(prompts) < args.prompts:
        raise UserError(f"PROMPTS is {args.prompts}, the pair {entry.pair} has {len(prompts)}", 2)
    most = dict(entry.server).get("max-running-requests")
    if isinstance(most, int) and max(args.batches) > most:
        raise UserError(f"BATCHES has {max(args.batches)}, the server takes {most} at once (max-running-requests)", 2)
    if max(args.batches) > args.prompts:
        raise UserError(f"BATCHES has {max(args.batches)}, which needs as many prompts: PROMPTS is {args.prompts}", 2)
    return Load(
        tuple(map(tuple, prompts[: args.prompts])),
        args.tokens,
        tuple(args.batches),
        tuple(args.temperatures),
        args.rounds,
        entry.limits.answer,
    )


def _writable(base: Path) -> None:
    """A `UserError` if nothing can be written there: better before the measurement than after it."""
    if not base.name:
        raise UserError("OUT names no file: give a path without suffix, such as OUT=before", 2)
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base.parent):
            pass
    except OSError as error:
        raise UserError(f"the measurement can't be written to {base}: {error.strerror}", 2) from None


def write(made: dict[str, Any], base: Path) -> tuple[Path, Path]:
    """The document and its page, each whole or not at all."""
    files = base.with_name(base.name + ".html"), base.with_name(base.name + ".json")
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, (page.render(made), json.dumps(made) + "\n"), strict=True):
            temporary = file.with_name(f".{file.name}.new")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(file)
    except OSError as error:
        raise UserError(f"the measurement can't be written to {base}: {error.strerror}") from None
    return files


def tables(made: dict[str, Any]) -> None:
    """Tokens a second of each server, a table for each temperature."""
    for temperature in made["load"]["temperatures"]:
        head = ["", *(f"batch {batch}" for batch in made["load"]["batches"]), "tokens a step", "as without"]
        rows = []
        for server in made["servers"]:
            cells = [cell for cell in server["cells"] if cell["temperature"] == temperature]
            speeds = [_with_spread(cell["tokens_per_second"]) for cell in cells]
            length = cells[0]["accept_length"]
            equal = server.get("equal") if temperature == 0 else None
            accept = f"{length['median']:.2f}" if length else "-"
            rows.append([server["name"], *speeds, accept, f"{equal['outputs']} of {equal['of']}" if equal else "-"])
        title = f"tokens/s at temperature {temperature:g}, median of {made['load']['rounds']} rounds (least to greatest)"
        show(title, head, rows)


def show(title: str, head: list[str], rows: list[list[str]]) -> None:
    """A table; columns of plain text where there is no terminal."""
    if out.is_terminal:
        table = Table(*[escape(name) for name in head], title=escape(title), title_justify="left")
        for row in rows:
            table.add_row(*map(escape, row))
        out.print(table)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(title)
    for row in (head, *rows):
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    print()


@contextlib.contextmanager
def progress(total: int) -> Iterator[Tick]:
    """`tick("text")` says what is done now, `total` times: on a terminal beside a bar, elsewhere a line for each cell."""
    if not err.is_terminal:
        yield lambda text: None if ", round" in text else err.print(text, markup=False)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text: bar.update(task, description=escape(text), advance=1)


def _everything(
    entry: Entry, load: Load, gather: Callable[[Entry], inputs.Inputs], tick: Tick, wanted: list[Setting] | None
) -> Iterator[dict[str, Any]]:
    """`wanted` servers one after the other; None: the one that serves."""
    if wanted is None:
        host = verbs.connect(entry)
        with contextlib.closing(host):
            yield _server(*servers.serving(host), load, tick)
        return
    target = entry if entry.remote else servers.own(entry)
    host = verbs.connect(target) if entry.remote else Sandbox(target)
    with contextlib.closing(host):
        # Everything that can be wrong with the inputs is found before a server is touched.
        ready = [(setting, gather(setting.of(target))) for setting in wanted]
        with servers.turn(host) as serve:
            for setting, wished in ready:
                tick(f"{setting}: starting")
                yield _server(setting, serve(wished), load, tick)


def _server(setting: Setting, served: Served, load: Load, tick: Tick) -> dict[str, Any]:
    name = str(setting)
    made = {
        "algorithm": setting.algorithm,
        "budget": setting.budget,
        "name": name,
        "release": served.release,
        "arguments": list(served.arguments),
        "start": served.start,
        "cells": list(measure.cells(served, load, lambda text: tick(f"{name}: {text}"))),
        "trees": [],
    }
    if setting.algorithm == "DDTREE":
        tick(f"{name}: trees")
        made["trees"] = measure.trees(served, load, load.temperatures, TREES)
    return made


def _with_spread(value: dict[str, float]) -> str:
    return f"{value['median']:.0f} ({value['low']:.0f}-{value['high']:.0f})"
