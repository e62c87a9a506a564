"""The dry run: if it says nothing, the series applies to the pinned tree, comes back to its bytes, and compiles.

Everything is read and done in memory; nothing is written, no host is asked. All that is wrong is listed, each with file and
line. A patch that fails is left out, and the patches that stand on files it touches are said to wait for it, so that one
mistake is not told ten times.

That any changed byte is noticed: a diff that is changed no longer has its images, or is not the text that `refresh` writes for
them; words of a header have no such witness, for them there is `SHA256SUMS`.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from patches import apply, differ, patch, series
from patches.errors import PatchError
from patches.patch import Patch, parse, split_name
from patches.refresh import SUMS
from tools.cli import UserError


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `line` is 1-based, None where a file is wrong as a whole (or is another than the series')."""

    file: str
    line: int | None
    reason: str


@dataclass
class Verdict:
    """One patch's line in the report."""

    name: str
    files: int = 0
    added: int = 0
    removed: int = 0
    findings: list[Finding] = field(default_factory=list)
    #: Name of a failed patch that this one stands on.
    waits_for: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the patch is sound, and so is what it stands on."""
        return not self.findings and self.waits_for is None


@dataclass(frozen=True)
class Checked:
    """All of the report: `findings` are those that belong to no patch (the list, the tree)."""

    version: str
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings and all(verdict.ok for verdict in self.verdicts)


def require(version: str, where: Path, pristine: Callable[[], Path]) -> None:
    """Refuse a series in which `check` finds anything.

    Raises:
        UserError: the first finding, and how many more there are.
    """
    checked = check(version, where, pristine)
    found = [*checked.findings, *(finding for verdict in checked.verdicts for finding in verdict.findings)]
    if found:
        first = found[0]
        place = first.file if first.line is None else f"{first.file}:{first.line}"
        more = f" (and {len(found) - 1} more: `make check-patches`)" if len(found) > 1 else ""
        raise UserError(f"the series is not fit to be deployed: {place}: {first.reason}{more}")


def check(version: str, where: Path, pristine: Callable[[], Path]) -> Checked:
    """Check the series in the folder `where` against the pristine tree (`pristine` may raise `UserError`: a finding too)."""
    findings: list[Finding] = []
    try:
        findings += (Finding(error.file, error.line, error.reason) for error in series.strangers(where))
        names = [name for _, name in series.names(where)]
    except PatchError as error:
        return Checked(version, (), (Finding(error.file, error.line, error.reason),))
    try:
        read = apply.reader(pristine())
    except UserError as error:
        return Checked(version, (), (*findings, Finding("snapshot", None, str(error))))

    run = _Run(version, read)
    verdicts: list[Verdict] = []
    for name in names:
        verdict = Verdict(name)
        verdicts.append(verdict)
        if (where / name).is_file():
            run.check(verdict, (where / name).read_bytes())
    run.compile({verdict.name: verdict for verdict in verdicts})
    findings += _check_sums(where, {verdict.name: verdict for verdict in verdicts})
    return Checked(version, tuple(verdicts), tuple(findings))


class _Run:
    """The tree as it is after the patches so far."""

    def __init__(self, version: str, read: Callable[[str], bytes | None]) -> None:
        self._version = version
        self._read = read
        self._state: dict[str, bytes | None] = {}
        self._last: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._names: list[str] = []

    def check(self, verdict: Verdict, data: bytes) -> None:
        """Fill in `verdict`, and go on to the tree after this patch if it is sound."""
        name = verdict.name
        try:
            found = parse(name, data)
        except PatchError as error:
            verdict.findings.append(_finding(error))
            self._names.append(name)
            return
        verdict.files = len(found.files)
        verdict.added = sum(item.added for item in found.files)
        verdict.removed = sum(item.removed for item in found.files)
        verdict.findings += self._header(found)
        verdict.waits_for = next((self._failed[item.path] for item in found.files if item.path in self._failed), None)
        if verdict.waits_for is None:
            after = self._apply(found, verdict.findings)
            if not verdict.findings:
                self._state |= after
                self._last |= dict.fromkeys(after, name)
        if not verdict.ok:
            self._failed |= {item.path: verdict.waits_for or name for item in found.files}
        self._names.append(name)

    def _header(self, found: Patch) -> Iterator[Finding]:
        head = found.header
        number, _ = split_name(found.name)
        if number != len(self._names) + 1:
            yield Finding(
                found.name,
                None,
                f"stands in place {len(self._names) + 1} of the series; `make edit` and `make refresh` number anew",
            )
        if head.base != f"sglang=={self._version}":
            yield Finding(found.name, head.lines["Base"], f"Base is {head.base}, the series is for sglang=={self._version}")
        for depend in head.depends:
            if depend not in self._names:
                yield Finding(found.name, head.lines["Depends"], f"depends on {depend}, which is no earlier patch of the series")

    def _apply(self, found: Patch, findings: list[Finding]) -> dict[str, bytes | None]:
        """The touched files after the patch; what is wrong goes to `findings`."""
        after: dict[str, bytes | None] = {}
        for step, image in zip(series.steps(found), found.header.images, strict=True):
            path = step.diff.path
            try:
                before = self._state[path] if path in self._state else self._read(path)
            except apply.NotPlain as reason:
                findings.append(Finding(found.name, step.diff.line, f"{path}: {reason}"))
                continue
            try:
                if apply.sha256(before) != image.pre:
                    raise self._wrong_pre_image(found.name, step, image.line, before)
                after[path] = apply.advance(path, (step,), before)
                if apply.advance(path, (step.reversed(),), after[path]) != before:
                    raise PatchError(found.name, step.diff.line, f"taken back, {path} does not have its bytes from before")
            except PatchError as error:
                findings.append(_finding(error))
        if not findings:
            findings += self._canonical(found, after)
        return after

    def _wrong_pre_image(self, name: str, step: series.Step, line: int, before: bytes | None) -> PatchError:
        """The sentence for a file that is not as the patch says; the hunk, if one of them shows it."""
        path = step.diff.path
        if before is None:
            return PatchError(name, line, f"{path} is not there, the patch says that it is")
        if step.pre is None:
            return PatchError(name, step.diff.line, f"creates {path}, which is there already")
        finding = apply.judge({path: (step,)}, lambda _: before).findings[0]
        for failure in finding.failures:
            hunk = failure.miss.hunk
            return PatchError(
                name, hunk.line, f"the hunk does not apply to {path}; line {failure.miss.nearest} is most like its place"
            )
        return PatchError(name, line, f"Pre-Image is not that of {path} at this point of the series ({apply.sha256(before)})")

    def _canonical(self, found: Patch, after: dict[str, bytes | None]) -> Iterator[Finding]:
        files = []
        for item in sorted(found.files, key=lambda item: item.path):
            before = self._state[item.path] if item.path in self._state else self._read(item.path)
            try:
                files.append(differ.file_diff(item.path, before, after[item.path]))
            except ValueError as reason:
                yield Finding(found.name, item.line, f"{item.path}: {reason}")
                return
        have, want = found.data.split(b"\n"), patch.render(found.header, tuple(files)).split(b"\n")
        for number, (one, other) in enumerate(zip(have, want, strict=False), 1):
            if one != other:
                yield Finding(
                    found.name, number, "is not written as `make refresh` writes it: run `make edit` and `make refresh`"
                )
                return
        if len(have) != len(want):
            yield Finding(found.name, min(len(have), len(want)), "is not written as `make refresh` writes it")

    def compile(self, verdicts: dict[str, Verdict]) -> None:
        """Compile the touched files as the whole series leaves them; a failure is the last patch's that touched the file."""
        for path, data in sorted(self._state.items()):
            if data is None or not path.endswith(".py"):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    compile(data, path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                line = getattr(error, "lineno", None)
                verdicts[self._last[path]].findings.append(
                    Finding(path, line, f"does not compile after the series: {getattr(error, 'msg', error)}")
                )


def _check_sums(where: Path, verdicts: dict[str, Verdict]) -> Iterator[Finding]:
    """Compare the sums; a patch that is wrong already needs no second sentence."""
    path = where / SUMS
    listed: dict[str, str] = {}
    remedy = "if the change is meant, run `make edit` and `make refresh`, else restore it from git"
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        digest, _, name = line.partition("  ")
        listed[name] = digest
        if name not in verdicts:
            yield Finding(
                SUMS, number, f"has a sum of {name or 'nothing'}, which is not in the series: run `make edit` and `make refresh`"
            )
    for name, verdict in verdicts.items():
        if not verdict.ok or not (where / name).is_file():
            continue
        data = (where / name).read_bytes()
        if name not in listed:
            verdict.findings.append(Finding(SUMS, None, f"has no sum of {name}: run `make edit` and `make refresh`"))
        elif hashlib.sha256(data).hexdigest() != listed[name]:
            end = data.split(b"\n").index(patch.SEPARATOR.encode())
            verdict.findings.append(
                Finding(name, 1, f"lines 1 to {end}, the header, are not as refresh wrote them (see {SUMS}): {remedy}")
            )


def _finding(error: PatchError) -> Finding:
    return Finding(error.file, error.line, error.reason)
