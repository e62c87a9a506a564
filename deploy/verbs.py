"""What each command does: facts, plan, and for those that change something the lock, the rollout and the audit log."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy import plan, rollout, show
from deploy.facts import as_json
from deploy.host import Host
from deploy.http import NoAnswer
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.plan import Plan
from deploy.remote import Remote
from deploy.rollout import Ending, Recap, Watch
from deploy.sandbox import Sandbox
from deploy.slot import words
from tools.cli import UserError, out

#: What the completion at the end continues, by how many tokens; seconds that it may take.
PROMPT, TOKENS, ANSWER = "# Licensed under the", 24, 60.0

#: Shows a plan before it is run: the plan and the host's name.
Announce = Callable[[Plan, str], None] | None


def connect(entry: Entry) -> Host:
    """The host of an inventory entry; its transport was checked with the entry."""
    return Remote(entry) if entry.remote else Sandbox(entry)


@dataclass(frozen=True)
class Report:
    """What a command has to say of one host: for machines, for people, and its exit code."""

    document: dict[str, Any]
    show: Callable[[], None]
    code: int = 0
    recap: Recap | None = None
    warnings: tuple[str, ...] = ()  # of the plan that was run


def tell(report: Report, *, json: bool) -> int:
    """Say it; returns the exit code."""
    show.document(report.document) if json else report.show()
    return report.code


def apply(host: Host, wanted: Inputs, *, json: bool) -> int:
    """Make the release serve, and show a completion that it served."""
    return tell(applied(host, wanted, show.Steps(host), _announce(json)), json=json)


def rollback(host: Host, to: str | None, *, json: bool) -> int:
    """Go back to the previous release, or to `to`."""
    return tell(rolled_back(host, to, show.Steps(host), _announce(json)), json=json)


def stop(host: Host, *, json: bool) -> int:
    """Drain and stop every server; the release stays current."""
    return tell(stopped(host), json=json)


def planned(host: Host, wanted: Inputs) -> Report:
    """What `apply` would do; changes nothing."""
    made = plan.apply(wanted, host.facts())
    return Report({"host": host.entry.name, **plan.as_json(made)}, lambda: show.plan(made, host.entry.name))


def applied(host: Host, wanted: Inputs, watch: Watch, announce: Announce = None) -> Report:
    """Make the release serve."""
    return _roll_out(host, "apply", lambda: plan.apply(wanted, host.facts()), watch, announce)


def rolled_back(host: Host, to: str | None, watch: Watch, announce: Announce = None) -> Report:
    """Make the previous release, or `to`, serve again."""
    return _roll_out(host, "rollback", lambda: plan.rollback(host.entry, host.facts(), to), watch, announce)


def stopped(host: Host) -> Report:
    """Drain and stop every server."""
    with host.hold("stop"):
        ran = [slot for slot in host.facts().instances if host.stop(slot)]
        host.audit({"verb": "stop", "ran": ran})
    said = (
        f"{' and '.join(map(words, ran))} {'is' if len(ran) == 1 else 'are'} stopped" if ran else "nothing changes: no server ran"
    )
    return Report({"host": host.entry.name, "stopped": ran}, lambda: out.print(f"{host.entry.name}: {said}", markup=False))


def state(host: Host) -> Report:
    """What serves now."""
    facts = host.facts()
    served = {slot: _served(host, slot) if instance.live else None for slot, instance in facts.instances.items()}
    endpoints = {slot: host.endpoint(slot) for slot in facts.instances}
    document = {"host": host.entry.name, "endpoints": endpoints, **as_json(facts), "accept_length_now": served}
    return Report(document, lambda: show.status(facts, host.entry.name, endpoints, served))


def unlocked(host: Remote) -> Report:
    """End the command that holds the host's lock, if it hangs."""
    ended = host.unlock()
    said = f"ended {ended}" if ended else "nothing holds the lock"
    return Report({"host": host.entry.name, "ended": ended}, lambda: out.print(f"{host.entry.name}: {said}", markup=False))


def logs(host: Host, lines: int, slot: str | None) -> int:
    """The end of the server's log; of each, with its name, where there are several and none is named."""
    known = list(host.facts().instances)
    if slot and slot not in known:
        raise UserError(f"{host.entry.name} has no instance {slot!r}; it has: {', '.join(known) or 'none'}", 2)
    for name in [slot] if slot else known:
        if len(known) > 1 and not slot:
            print(f"==> {name} <==")
        print(*host.log(name, lines), sep="\n")
    return 0


def _announce(json: bool) -> Announce:
    return None if json else show.plan


def _roll_out(host: Host, verb: str, make: Callable[[], Plan], watch: Watch, announce: Announce) -> Report:
    with host.hold(verb):
        made = make()
        if announce:
            announce(made, host.entry.name)
        recap = rollout.run(made, host, watch)
        host.poll = lambda: None  # what follows only tells what was done
        document: dict[str, Any] = {"host": host.entry.name, **rollout.as_json(recap)}
        with contextlib.suppress(UserError):  # of a host that is gone
            host.audit({"verb": verb, **document})
        served = _completion(host, recap.release) if recap.ending is Ending.DONE else {}
        model = host.manifest(recap.release).model if "endpoint" in served else ""

    def say() -> None:
        show.recap(recap)
        _show_completion(model, served)

    return Report({**document, **served}, say, recap.ending.value, recap, made.warnings)


def _completion(host: Host, release: str) -> dict[str, Any]:
    """One completion of the release's first server, its accept length, and the release that the server says it is."""
    slot = host.manifest(release).slots[0].name
    body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS}}
    try:
        answer = host.ask(slot, "/generate", body, timeout=ANSWER)
        release = host.ask(slot, "/model_info", timeout=ANSWER)["weight_version"]
    except NoAnswer as error:
        return {"completion": None, "completion_error": str(error)}
    meta = answer["meta_info"]
    return {
        "endpoint": host.endpoint(slot),
        "release_served": release,
        "prompt": PROMPT,
        "completion": answer["text"],
        "accept_length": meta.get("spec_accept_length"),
    }


def _show_completion(model: str, served: dict[str, Any]) -> None:
    if "endpoint" not in served:
        return
    accept = served["accept_length"]
    out.print()
    out.print(f"prompt         {served['prompt']!r}", markup=False)
    out.print(f"completion     {served['completion']!r}", markup=False)
    out.print(f"accept length  {accept:.2f} tokens a verify step" if accept else "accept length  -", markup=False)
    out.print(f"release        {served['release_served']} (read back from the server)", markup=False)
    out.print(f"endpoint       {served['endpoint']}/v1 (OpenAI-compatible)", markup=False)
    out.print(f"try            {curl(served['endpoint'], model)}", markup=False)


def curl(endpoint: str, model: str) -> str:
    """A command line that asks the server for a completion."""
    body = f'{{"model": "{model}", "prompt": "{PROMPT}", "max_tokens": 32, "temperature": 0}}'
    return f"curl -s {endpoint}/v1/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _served(host: Host, slot: str) -> float | None:
    """The running server's mean accept length; None until it has reported one, which it does every few dozen steps."""
    try:
        states = host.ask(slot, "/server_info", timeout=ANSWER)["internal_states"]
    except NoAnswer:
        return None
    return next((state["avg_spec_accept_length"] for state in states if "avg_spec_accept_length" in state), None)
