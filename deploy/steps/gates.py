"""The gates: healthy, proved, and right. A release that fails one does not stay."""

from __future__ import annotations

import time
from dataclasses import dataclass

from deploy import health, proof, semantic
from deploy.facts import Verdict
from deploy.host import Host
from deploy.http import NoAnswer
from deploy.slot import words
from deploy.steps import Step, StepFailed

#: Seconds for one of the server's own reports.
REPORT = 30.0
#: How often the probes are asked while they are too slow: the first time can be one that compiles.
TRIES = 3
#: What the health gate lets the server continue, and by how many tokens.
PROMPT, TOKENS = "import", 8


@dataclass(frozen=True)
class Health(Step):
    """Liveness, then a real generation: a server can answer its health endpoint and generate nothing."""

    name = "health"
    slot: str
    start: float
    live: bool = False  # it answered its health endpoint a moment ago, when the facts were read

    def describe(self) -> str:
        if self.live:
            return f"see that {words(self.slot)} generates"
        return f"wait until {words(self.slot)} is healthy (up to {self.start:.0f} s) and generates"

    def apply(self, host: Host) -> str:
        seconds = 0.0 if self.live else health.wait(host, self.slot)
        body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}}
        answer = ask(host, self.slot, "/generate", body, timeout=host.entry.limits.answer)
        if len(answer.get("output_ids", ())) != TOKENS:
            raise StepFailed(f"the server is healthy but generates {answer.get('output_ids')!r} instead of {TOKENS} tokens")
        return f"healthy after {seconds:.0f} s" if seconds > 1 else "healthy"


@dataclass(frozen=True)
class Prove(Step):
    """The server reports this release, and what its processes loaded is this release's code."""

    name = "prove"
    slot: str
    release: str

    def describe(self) -> str:
        how = "by its own report, and by the code that its processes loaded"
        return f"prove that {words(self.slot)} is release {self.release}: {how}"

    def apply(self, host: Host) -> str:
        manifest = host.manifest(self.release)
        slot = manifest.slot(self.slot)
        said = [ask(host, self.slot, report, timeout=REPORT) for report in ("/server_info", "/model_info")]
        findings = proof.identity(manifest, slot, *said)
        evidence = proof.loaded(manifest, slot, host.root() / "releases" / self.release / "site", host.attested(self.slot))
        if findings := [*findings, *evidence.findings]:
            raise StepFailed(proof.sentence(findings))
        cuda = f", {evidence.libraries} of CUDA's libraries once each" if evidence.libraries else ""
        return (
            f"{evidence.modules} modules in {evidence.processes} processes, "
            f"{evidence.touched} of {len(manifest.touched)} patched files loaded{cuda}"
        )


@dataclass(frozen=True)
class Probe(Step):
    """The semantic gate; what it found is kept with the release."""

    name = "probe"
    slot: str
    release: str
    floor: float | None = None  # tokens/s; None: there is nothing to compare with

    def describe(self) -> str:
        what = "what the target says alone, token for token; accept length in its band"
        what += f"; at least {self.floor:.1f} tokens/s" if self.floor else ""
        return f"compare greedy probes of {words(self.slot)} with {what}"

    def apply(self, host: Host) -> str:
        probes = host.probes(self.release)
        for _ in range(TRIES if self.floor else 1):
            begin = time.monotonic()
            answers = ask(host, self.slot, "/generate", semantic.question(probes), timeout=host.entry.limits.answer)
            speed = len(answers) * probes.new_tokens / (time.monotonic() - begin)
            judged = semantic.judge(probes, answers, host.entry.limits)
            slow = semantic.too_slow(speed, self.floor)
            if judged.finding or not slow:
                break
        if finding := judged.finding or slow:
            raise StepFailed(finding)
        why = f"{judged.equal} of {len(answers)} probes equal, accept length {judged.accept_length:.2f}"
        host.judge(Verdict(self.release, True, why, time.time(), judged.accept_length, speed))
        return why


def ask(host: Host, slot: str, path: str, body: dict | None = None, *, timeout: float) -> dict:
    """A question whose missing answer fails the step."""
    try:
        return host.ask(slot, path, body, timeout=timeout)
    except NoAnswer as error:
        raise StepFailed(str(error)) from None
