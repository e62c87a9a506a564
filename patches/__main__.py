"""`python -m patches`: check the series, lay out the patched tree, edit and refresh it, apply it to a tree that exists."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from patches import apply, check, edit, refresh, report, series, tree
from tools.cli import UserError, out, run
from tools.paths import CACHE, REPO, VERSION


def _check(arguments: argparse.Namespace) -> int:
    """the dry run: headers, order, exact apply and reverse, compile"""
    from snapshot.tree import pristine

    result = check.check(VERSION, series.folder(), lambda: pristine(VERSION))
    folder = _short(series.folder())
    if arguments.json:
        print(json.dumps(report.checked_json(result, folder), indent=2))
    else:
        report.checked(result, folder)
    return 0 if result.ok else 1


def _tree(arguments: argparse.Namespace) -> int:
    """lay out the patched tree and print its path"""
    built = tree.build()
    print(json.dumps({"root": str(built.root), "digest": built.digest}) if arguments.json else built.root)
    return 0


def _edit(arguments: argparse.Namespace) -> int:
    """a git work tree with one commit a patch"""
    from snapshot.tree import pristine

    made = edit.lay_out(series.load(), pristine(VERSION), _work_tree(), force=arguments.force)
    patches = f"{made.commits} patches" if made.commits != 1 else "1 patch"
    out.print(
        f"{_short(made.root)}: {'pristine tree, then ' if made.made else 'already there, with '}{patches}, one commit each",
        markup=False,
    )
    if made.aside:
        out.print(f"the former one is now {_short(made.aside)}", markup=False)
    out.print("commit, amend or rebase there, then `make refresh`", markup=False)
    return 0


def _refresh(arguments: argparse.Namespace) -> int:
    """write the edited commits back as patches"""
    done = refresh.refresh(VERSION, _work_tree(), series.folder(), force=arguments.force)
    for word, names in (("written", done.written), ("removed", done.removed)):
        for name in names:
            out.print(f"{word:9} {_short(series.folder())}/{name}", markup=False)
    out.print(f"{len(done.unchanged)} unchanged, {len(done.written)} written, {len(done.removed)} removed")
    return 0


def _apply(arguments: argparse.Namespace) -> int:
    """bring an import root that exists to the patched state, in place; all of the series or nothing"""
    return _in_place(arguments, apply.apply)


def _reverse(arguments: argparse.Namespace) -> int:
    """take the series back from an import root, to the bytes from before"""
    return _in_place(arguments, apply.reverse)


def _in_place(arguments: argparse.Namespace, what: Callable[..., apply.Report]) -> int:
    if not (arguments.root / tree.PACKAGE).is_dir():
        raise UserError(f"{arguments.root} is no import root: it has no folder {tree.PACKAGE}")
    result = what(series.load(), arguments.root, dry_run=arguments.dry_run)
    if arguments.json:
        print(json.dumps(report.applied_json(result), indent=2))
    else:
        for line in report.applied(result):
            out.print(line, markup=False)
        if not result.ok:
            out.print("nothing was written")
        elif not result.changes:
            out.print("nothing to do")
    return 0 if result.ok else 1


def _work_tree() -> Path:
    return CACHE / "edit" / VERSION


def _short(path: Path) -> str:
    return str(path.relative_to(REPO)) if path.is_relative_to(REPO) else str(path)


def main() -> int:
    """Parse the command line and run a verb."""
    parser = argparse.ArgumentParser(prog="python -m patches", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="verb")
    for name, function in (
        ("check", _check), ("tree", _tree), ("edit", _edit), ("refresh", _refresh), ("apply", _apply), ("reverse", _reverse),
    ):  # fmt: skip
        verb = verbs.add_parser(name, help=function.__doc__, description=function.__doc__)
        verb.set_defaults(run=function)
        if name in ("edit", "refresh"):
            verb.add_argument("--force", action="store_true", help="go on although work would be replaced (edit: moved aside)")
        else:
            verb.add_argument("--json", action="store_true", help="machine-readable output")
        if name in ("apply", "reverse"):
            verb.add_argument("root", type=Path, help="directory that holds sglang/")
            verb.add_argument("--dry-run", action="store_true", help="say what would be done, write nothing")
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    run(main)
