"""One command on several hosts at the same time: each goes its own way, none waits for another or hides it, one recap at the end.

An interruption reaches every host: what has begun there is undone, what has not begun does not begin.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from deploy import show, verbs
from deploy.board import Board, Line
from deploy.host import Host
from deploy.inventory import Entry
from deploy.rollout import Ending
from deploy.verbs import Report
from tools.cli import UserError, err

#: Hosts worked on at the same time.
WIDTH = 16
#: What is done to one host; the line shows its steps.
Work = Callable[[Host, Line], Report]


@dataclass
class _Poll:
    """What a host's waits call: raises once, when all are to stop; what is then undone is not stopped again."""

    stop: threading.Event
    told: bool = False

    def __call__(self) -> None:
        if self.stop.is_set() and not self.told:
            self.told = True
            raise KeyboardInterrupt


def run(entries: Sequence[Entry], work: Work, *, json: bool) -> int:
    """Do `work` on all hosts and tell of each, in the order given; the worst exit code."""
    stop = threading.Event()
    with Board([entry.name for entry in entries]) as board, ThreadPoolExecutor(WIDTH) as pool:
        begun: list[Future[Report]] = []
        while True:
            try:
                for entry in entries[len(begun) :]:
                    begun.append(pool.submit(_one, entry, work, board.line(entry.name), _Poll(stop)))
                # In short waits, which a signal can come between.
                while wait(begun, timeout=0.2).not_done:
                    pass
                break
            except KeyboardInterrupt:
                stop.set()
                err.print("interrupted: every host is brought back to what it was; the recap follows")
    reports = {entry.name: each.result() for entry, each in zip(entries, begun, strict=True)}
    code = max(report.code for report in reports.values())
    if json:
        show.document({"exit": code, "hosts": [report.document for report in reports.values()]})
        return code
    rolled = any(report.recap for report in reports.values())
    if rolled:
        show.recaps({name: (report.recap, _word(report)) for name, report in reports.items()})
    for name, report in reports.items():
        for warning in report.warnings:
            err.print(f"{name}: warning: {warning}", markup=False)
        if report.recap and report.recap.failure:
            show.failure(report.recap, name)
        elif "error" in report.document:
            err.print(f"{name}: {report.document['error']}", markup=False)
        elif not rolled:
            report.show()
    return code


def _one(entry: Entry, work: Work, line: Line, poll: _Poll) -> Report:
    """The whole of one host; whatever goes wrong there is in its report."""
    host = None
    try:
        host = verbs.connect(entry)
        host.progress, host.poll = line.pushed, poll
        poll()
        report = work(host, line)
    except UserError as error:
        report = _failed(entry, str(error).removeprefix(f"{entry.name}: "), error.code)
    except KeyboardInterrupt:
        report = _failed(entry, "interrupted", Ending.REFUSED.value)
    except Exception as error:  # a defect of ours: say where, and leave the other hosts alone
        err.print(f"{entry.name}: {traceback.format_exc()}", markup=False)
        report = _failed(entry, str(error) or type(error).__name__, Ending.STRANDED.value)
    finally:
        if host:
            host.close()
    line.end(_word(report))
    return report


def _failed(entry: Entry, why: str, code: int) -> Report:
    return Report({"host": entry.name, "error": why, "exit": code}, lambda: None, code)


def _word(report: Report) -> str:
    """How it ended, in a word or two."""
    if report.recap and report.recap.ending is Ending.DONE:
        return "nothing changes" if report.recap.summary.startswith("nothing changes") else "done"
    if report.recap:
        return {Ending.REFUSED: "failed", Ending.ROLLED_BACK: "rolled back", Ending.STRANDED: "NEEDS A PERSON"}[
            report.recap.ending
        ]
    return "failed" if "error" in report.document else "done"
