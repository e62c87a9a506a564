"""What people see: the plan as a tree, steps as they run, the recap as a table. Plain text where there is no terminal."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from deploy import preflight
from deploy.facts import Facts
from deploy.gpus import Gpu
from deploy.host import Host
from deploy.inventory import Entry
from deploy.plan import Plan
from deploy.rollout import Ending, Recap, Row
from deploy.slot import ENGINE, Slot
from tools.cli import err, out

#: From good to bad.
_COLOURS = {"ok": "green", "undone": "yellow", "failed": "red", "undo failed": "red"}
_ENDINGS = {
    Ending.REFUSED: "failed before any change: what served still serves",
    Ending.ROLLED_BACK: "rolled back: the old release serves again",
    Ending.STRANDED: "A PERSON IS NEEDED: nothing that was proved serves on this host",
}


def document(value: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    out.print_json(json.dumps(value)) if out.is_terminal else print(json.dumps(value, indent=1))


def plan(plan: Plan, host: str) -> None:
    """The tree of steps."""
    back = f"back to {plan.fallback}" if plan.fallback else "stop; there is no release to go back to"
    last = f"if a step fails: {back}" if plan.changes else "nothing restarts"
    if not out.is_terminal:
        lines = [f"{host}: {plan.summary}"]
        for step in plan.steps:
            lines += [f"  {step.name:<7} {step.describe()}", *(f"            {line}" for line in step.details())]
        lines += [*(f"  warning {line}" for line in plan.warnings), f"  {last}"]
        out.print("\n".join(lines), markup=False)
        return
    tree = Tree(f"[bold]{escape(host)}[/]: {escape(plan.summary)}")
    for step in plan.steps:
        branch = tree.add(f"[bold]{step.name:<7}[/] {escape(step.describe())}")
        for line in step.details():
            under = branch.children[-1] if line.startswith(" ") else branch
            under.add(escape(line.strip()))
    for line in plan.warnings:
        tree.add(f"[bold yellow]warning[/] {escape(line)}")
    tree.add(f"[yellow]{escape(last)}[/]")
    out.print(tree)


class Steps:
    """A host's running step: a spinner with the bytes that it pushed on a terminal, one line when it ends elsewhere."""

    def __init__(self, host: Host) -> None:
        self._say, self._status, self._sent = "", None, 0
        host.progress = self._pushed

    @contextlib.contextmanager
    def __call__(self, say: str) -> Iterator[None]:
        begin, self._say, self._sent = time.monotonic(), say, 0
        if err.is_terminal:
            with err.status(escape(say)) as self._status:
                yield
        else:
            yield
        err.print(f"  {say}: {pushed(self._sent)}{time.monotonic() - begin:.1f} s", markup=False)

    def _pushed(self, sent: int, total: int) -> None:
        self._sent = sent
        if self._status:
            self._status.update(f"{escape(self._say)}: {sent / 1e6:.1f} of {total / 1e6:.1f} MB pushed")


def pushed(sent: int) -> str:
    """`12.3 MB pushed, ` if anything was."""
    return f"{sent / 1e6:.1f} MB pushed, " if sent else ""


def recap(recap: Recap) -> None:
    """The table of what was done; after a failure the server's last words and the ending, loudly."""
    if out.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column, how in {"step": "left", "outcome": "left", "seconds": "right", "": "left"}.items():
            table.add_column(column, justify=how, overflow="fold")
        for row in recap.rows:
            table.add_row(_where(row), f"[{_COLOURS[row.outcome]}]{row.outcome}[/]", f"{row.seconds:.1f}", escape(row.detail))
        out.print(table)
    else:
        wide = max(7, *(len(_where(row)) for row in recap.rows))
        out.print(f"{'step':<{wide}} {'outcome':<11} {'seconds':>7}", markup=False)
        for row in recap.rows:
            out.print(f"{_where(row):<{wide}} {row.outcome:<11} {row.seconds:>7.1f}  {row.detail}", markup=False)
    if recap.failure:
        failure(recap, "")
    else:
        out.print(recap.summary, markup=False)


def recaps(hosts: dict[str, tuple[Recap | None, str]]) -> None:
    """One table of several hosts by step; `hosts`: what was done, and how it ended in a word or two."""
    steps = list(dict.fromkeys(row.step for recap, _ in hosts.values() if recap for row in recap.rows))
    rows = {name: [_cell(recap, step) for step in steps] for name, (recap, _) in hosts.items()}
    if out.is_terminal:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("host", *steps, ""):
            table.add_column(column, no_wrap=column != "")
        for name, (recap, word) in hosts.items():
            how = "green" if recap and recap.ending is Ending.DONE else "bold red"
            cells = [f"[{_COLOURS[outcome]}]{text}[/]" if outcome else "" for outcome, text in rows[name]]
            table.add_row(escape(name), *cells, f"[{how}]{word}[/]")
        out.print(table)
        return
    lines = [["host", *steps, ""], *([name, *(text for _, text in rows[name]), word] for name, (_, word) in hosts.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        out.print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), markup=False)


def _cell(recap: Recap | None, step: str) -> tuple[str, str]:
    """The worst outcome of a host's rows of one step, over instances and undoing, and with it their seconds."""
    rows = [row for row in recap.rows if row.step == step] if recap else []
    if not rows:
        return "", "-"
    outcome = max((row.outcome for row in rows), key=list(_COLOURS).index)
    return outcome, f"{outcome} {sum(row.seconds for row in rows):.1f}"


def failure(recap: Recap, host: str) -> None:
    """Why a rollout failed and how it ended, with the end of the server's log; `host` begins each sentence if it is given."""
    name = f"{host}: " if host else ""
    if recap.log:
        err.print(f"{name}the end of the server's log:", markup=False)
        for line in recap.log:
            err.print(f"  | {line}", markup=False)
    err.print(f"{name or 'error: '}{recap.failure}", markup=False)
    if recap.note:
        err.print(f"{name}{recap.note}", markup=False)
    err.print(f"{escape(name)}[bold red]{_ENDINGS[recap.ending]}[/]")


def hosts(entries: list[Entry], *, json: bool) -> int:
    """The inventory."""
    rows = [
        {
            "host": entry.name,
            "where": "this machine"
            if not entry.remote
            else f"{entry.user + '@' if entry.user else ''}{entry.address or entry.name}",
            "profile": entry.profile,
            "models": entry.pair,
            "algorithm": f"{entry.algorithm} {entry.budget}" if entry.algorithm == "DDTREE" else entry.algorithm,
            "instances": _topology(entry.slots),
            "gpus": _span([gpu for slot in entry.slots for gpu in slot.gpus]) or "-",
            "ports": _span([slot.port for slot in entry.slots]),
            "nccl ports": _span([slot.nccl_port for slot in entry.slots]),
            "root": str(entry.root),
        }
        for entry in entries
    ]
    if json:
        document({"hosts": rows})
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    out.print(table)
    return 0


def status(facts: Facts, host: str, endpoints: dict[str, str], served: dict[str, float | None]) -> None:
    """The host at a glance. By slot, `endpoints` and `served`: the running server's accept length so far."""
    lines = [("current", _named(facts, facts.current)), ("previous", _named(facts, facts.previous))]
    for name, running in facts.instances.items():
        lines += [
            (
                "server" if name == ENGINE else name,
                f"{running.state}{f', process {running.pid}' if running.pid else ''}"
                + (f", release {running.release}" if running.release != facts.current and running.running else "")
                + (f", since {_clock(running.since)}" if running.since else "")
                + (f", restarted {running.restarts} times" if running.restarts else "")
                + (f" ({running.exit})" if running.exit and not running.running else ""),
            ),
            ("  health", f"live at {endpoints[name]}" if running.live else facts.stranger or "does not answer"),
            ("  accept length", f"{served[name]:.2f} tokens a verify step so far" if served[name] else "not known yet"),
        ]
    if not facts.instances:
        lines.append(("server", facts.stranger or "none was started"))
    lines.append(("releases", ", ".join(facts.releases) or "none"))
    lines += [(f"GPU {gpu.index}", _gpu(gpu)) for gpu in facts.gpus]
    lines += [("warning", line) for line in preflight.warnings(facts.gpus)]
    out.print(f"[bold]{escape(host)}[/]")
    for name, text in lines:
        out.print(f"  [bold]{name:<15}[/] {escape(text)}")


def _gpu(gpu: Gpu) -> str:
    return gpu.fault or f"{gpu.name}, driver {gpu.driver}, {gpu.used} of {gpu.total} MiB in use, {gpu.uuid}"


def _where(row: Row) -> str:
    return row.step if row.instance in (None, ENGINE) else f"{row.step} {row.instance}"


def _topology(slots: tuple[Slot, ...]) -> str:
    """`8 x tp1`; `tp2, 6 x tp1` where they differ."""
    sizes = [slot.tp for slot in slots]
    kinds = {f"tp{size}": sizes.count(size) for size in sorted(set(sizes), reverse=True)}
    return ", ".join(f"{number} x {kind}" if number > 1 else kind for kind, number in kinds.items())


def _span(numbers: list[int]) -> str:
    """`30000-30007`, or each."""
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))


def _named(facts: Facts, release: str | None) -> str:
    if release is None:
        return "none"
    verdict = facts.verdicts.get(release)
    if verdict is None:
        return f"{release} (not proved)"
    return f"{release} ({'proved' if verdict.proved else 'refused'} {_clock(verdict.when)}: {verdict.why})"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
