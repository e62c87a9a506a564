"""The rules: pure functions of the facts. Each yields nothing where its facts are not there, so a lock is judged by R1, R6, R9
and R13 alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from overlay.doctor.facts import Facts
from overlay.doctor.finding import Finding, Severity
from overlay.doctor.rules import closure, exports, gpu, labels, linking, machine, records

RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    records.readable,
    labels.coherence,
    linking.majors,
    linking.closure,
    exports.torch_symbols,
    exports.other_symbols,
    records.integrity,
    closure.requirements,
    gpu.coverage,
    gpu.driver,
    labels.lockstep,
    gpu.toolchain,
    machine.caches,
    machine.shadowing,
    records.dual,
    machine.live,
)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, the worst first, then by rule."""
    order = list(Severity)
    found = [finding for rule in RULES for finding in rule(facts)]
    return tuple(sorted(found, key=lambda finding: (order.index(finding.severity), int(finding.rule[1:]), finding.title)))
