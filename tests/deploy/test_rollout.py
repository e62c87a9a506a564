"""Rollouts on the sandbox with a stand-in engine: real releases, processes, ports, attestations and gates."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import verbs
from deploy.inputs import Inputs
from deploy.sandbox import Sandbox
from deploy.slot import ENGINE
from deploy.steps.gates import Health
from tools.cli import UserError

Make = Callable[..., Inputs]


def test_a_second_apply_changes_and_restarts_nothing_and_says_so(host: Sandbox, inputs_of: Make, capsys) -> None:
    wanted = inputs_of()
    assert verbs.apply(host, wanted, json=False) == 0
    said = capsys.readouterr().out
    assert f"{wanted.release} (read back from the server)" in said and "3.00 tokens a verify step" in said
    first = host.facts()
    assert (first.current, first.previous, first.serves(wanted.release)) == (wanted.release, None, True)

    assert verbs.apply(host, inputs_of(), json=False) == 0
    assert f"nothing changes: release {wanted.release} is current and serves" in capsys.readouterr().out
    assert host.instance(ENGINE).pid == first.instance(ENGINE).pid


@pytest.mark.parametrize(
    ("wrong", "step", "why"),
    [
        ({"LOSSY": True}, "probe", "probe 1, whose token 3 is"),
        ({"ACCEPT": 1}, "probe", "accept length 1.00 is out of its band"),
        ({"CLAIM": "another"}, "prove", "the server says another"),
        ({"CRASH": True}, "health", "ended while it started (exit status 1)"),
        ({"MUTE": True}, "health", "no answer within 5 s"),
    ],
)
def test_a_bad_release_goes_back_to_the_old_one(host: Sandbox, inputs_of: Make, capsys, wrong: dict, step: str, why: str) -> None:
    good, bad = inputs_of(), inputs_of(**wrong)
    assert verbs.apply(host, good, json=True) == 0
    capsys.readouterr()

    if "MUTE" in wrong:  # nobody wants to wait for it as long as for the others
        host = Sandbox(dataclasses.replace(host.entry, limits=dataclasses.replace(host.entry.limits, answer=5)))
    assert verbs.apply(host, bad, json=True) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["ending"] == "rolled back"
    assert said["failure"].startswith(f"{step}: ") and why in said["failure"]
    assert said["log"], "the log's tail is shown"
    facts = host.facts()
    assert (facts.current, facts.instance(ENGINE).release, facts.instance(ENGINE).live) == (good.release, good.release, True)
    assert facts.verdicts[bad.release].proved is False


def test_a_release_far_slower_than_the_one_before_goes_back(host: Sandbox, inputs_of: Make, capsys) -> None:
    first = inputs_of()
    assert verbs.apply(host, first, json=True) == 0, "there is none to compare with"
    verdict = host.facts().verdicts[first.release]
    assert verdict.tokens_per_second > 0
    host.judge(dataclasses.replace(verdict, tokens_per_second=1e12))
    capsys.readouterr()
    assert verbs.apply(host, inputs_of(ACCEPT=2), json=True) == 3
    failure = json.loads(capsys.readouterr().out)["failure"]
    said = r"probe: [\d.]+ tokens/s, where the release before and its speed-floor ask for at least 1000000\.0"
    assert re.fullmatch(said, failure)
    assert host.facts().serves(first.release)


def test_the_first_release_has_nothing_to_go_back_to(host: Sandbox, inputs_of: Make, capsys) -> None:
    assert verbs.apply(host, inputs_of(LOSSY=True), json=False) == 4
    assert "A PERSON IS NEEDED" in capsys.readouterr().err
    facts = host.facts()
    assert (facts.current, facts.running, facts.stranger) == (None, (), None)
    assert verbs.apply(host, inputs_of(), json=True) == 0, "a good one mends it"


def test_rollback_is_the_same_switch_backwards(host: Sandbox, inputs_of: Make, capsys) -> None:
    old, new = inputs_of(), inputs_of(ACCEPT=2)
    for wanted in (old, new):
        assert verbs.apply(host, wanted, json=True) == 0
    assert verbs.rollback(host, None, json=False) == 0
    facts = host.facts()
    assert (facts.current, facts.previous, facts.instance(ENGINE).release) == (old.release, new.release, old.release)
    assert f"{old.release} (read back" in capsys.readouterr().out
    assert verbs.rollback(host, new.release, json=True) == 0
    assert host.facts().current == new.release


def test_rollback_needs_somewhere_to_go_and_a_release_as_it_was_staged(host: Sandbox, inputs_of: Make) -> None:
    with pytest.raises(UserError, match="no previous release"):
        verbs.rollback(host, None, json=True)
    old, new = inputs_of(), inputs_of(ACCEPT=2)
    for wanted in (old, new):
        verbs.apply(host, wanted, json=True)
    with pytest.raises(UserError, match=f"no whole release nope; there are: .*{old.release}"):
        verbs.rollback(host, "nope", json=True)
    pid = host.instance(ENGINE).pid
    (host.layout.release(old.release) / "site" / "sglang" / "version.py").write_text("VERSION = 'edited'\n")
    assert verbs.rollback(host, None, json=True) == 1, "found before anything was touched"
    assert host.instance(ENGINE).pid == pid


def test_a_dead_server_is_started_again_and_it_is_said(host: Sandbox, inputs_of: Make, capsys) -> None:
    wanted = inputs_of()
    verbs.apply(host, wanted, json=True)
    verbs.stop(host, json=True)
    capsys.readouterr()
    assert verbs.apply(host, wanted, json=False) == 0
    assert f"the server of {wanted.release} is started again, it ended (exit status 0)" in capsys.readouterr().out
    assert host.facts().serves(wanted.release)


def test_a_taken_port_is_named_before_anything_changes(host: Sandbox, inputs_of: Make) -> None:
    with socket.create_server(("127.0.0.1", host.entry.port)):
        with pytest.raises(UserError, match=f"port {host.entry.port} is held by process {os.getpid()} .*python"):
            verbs.apply(host, inputs_of(), json=True)
        assert not host.layout.releases.exists()


def test_a_shim_or_patch_that_changes_makes_another_release(inputs_of: Make) -> None:
    first = inputs_of()
    assert inputs_of().release == first.release
    assert inputs_of(ACCEPT=2).release != first.release
    (first.shims / "shim.py").write_text("LOADED = 'differently'\n")
    again = first.shims / "more.py"
    again.write_text("")
    assert inputs_of().release != first.release


def test_old_releases_are_pruned_but_never_current_or_previous(host: Sandbox, inputs_of: Make) -> None:
    made = []
    for accept in (2, 3, 6):
        wanted = inputs_of(ACCEPT=accept)
        made.append(wanted.release)
        verbs.apply(host, wanted, json=True)
    assert host.prune(1, frozenset(made[1:])) == (made[0],)
    assert set(host.facts().releases) == set(made[1:])
    assert host.prune(1, frozenset(made[1:])) == ()
    assert not (host.layout.verdicts / f"{made[0]}.json").exists()


CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import verbs
from deploy.sandbox import Sandbox
from tests.deploy import world
import dataclasses
entry = world.make_entry(Path({root!r}), slots=world.slots(port={port}))
wanted = world.make_inputs(Path({folder!r}), entry, ACCEPT=2)
world.die_after({steps})
verbs.apply(Sandbox(entry), wanted, json=True)
"""


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6])
def test_a_controller_killed_after_any_step_leaves_what_a_second_apply_mends(
    host: Sandbox, inputs_of: Make, tmp_path: Path, steps: int
) -> None:
    old = inputs_of()
    verbs.apply(host, old, json=True)
    repo = str(Path(__file__).parents[2])
    code = CONTROLLER.format(repo=repo, root=str(host.entry.root), port=host.entry.port, folder=str(tmp_path), steps=steps)
    killed = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    new = inputs_of(ACCEPT=2)
    facts = host.facts()
    assert facts.current == facts.fallback == old.release, "until all of it is proved"

    assert verbs.apply(host, new, json=True) == 0
    facts = host.facts()
    assert (facts.current, facts.previous, facts.serves(new.release)) == (new.release, old.release, True)


INTERRUPTED = """
import dataclasses, signal, sys
from pathlib import Path
sys.path.insert(0, {repo!r})
from deploy import __main__ as command, inputs, inventory
from tests.deploy import world
from tools import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's children ignore it
entry = world.make_entry(Path({root!r}), slots=world.slots(port={port}))
inventory.select = lambda *args, **more: [entry]
inputs.gather = lambda entry: world.make_inputs(Path({folder!r}), entry, MUTE=True)
sys.argv = ["deploy", "apply"]
cli.run(command.main)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_controller_takes_back_what_it_began(
    host: Sandbox, inputs_of: Make, tmp_path: Path, how: signal.Signals
) -> None:
    old = inputs_of()
    verbs.apply(host, old, json=True)
    repo = str(Path(__file__).parents[2])
    code = INTERRUPTED.format(repo=repo, root=str(host.entry.root), port=host.entry.port, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], cwd=repo, stderr=subprocess.PIPE, text=True) as controller:
        end = time.monotonic() + 90
        while host.instance(ENGINE).release in (None, old.release) or not host.facts().instance(ENGINE).live:
            assert time.monotonic() < end and controller.poll() is None
        controller.send_signal(how)
        # The new server can live before its start counts as done.
        assert controller.stderr and re.search("(start|health): interrupted", controller.stderr.read())
        assert controller.wait(30) == 3
    facts = host.facts()
    assert (facts.current, facts.instance(ENGINE).release, facts.instance(ENGINE).live) == (old.release, old.release, True)


def test_an_interruption_between_two_steps_is_one_in_them(
    host: Sandbox, inputs_of: Make, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = inputs_of()
    verbs.apply(host, old, json=True)
    capsys.readouterr()

    def interrupted(step: Health) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Health, "describe", interrupted)  # asked before the step begins
    assert verbs.apply(host, inputs_of(ACCEPT=2), json=True) == 3
    assert json.loads(capsys.readouterr().out)["failure"] == "health: interrupted"
    assert host.facts().serves(old.release)


def test_two_applies_at_once_and_who_holds_the_host(host: Sandbox, inputs_of: Make) -> None:
    with host.hold("apply"), pytest.raises(UserError, match=rf"`apply` of .* \(process {os.getpid()}\) works on this host since"):
        verbs.apply(host, inputs_of(), json=True)


def test_the_audit_log_tells_each_change(host: Sandbox, inputs_of: Make) -> None:
    wanted = inputs_of()
    verbs.apply(host, wanted, json=True)
    verbs.stop(host, json=True)
    events = [json.loads(line) for line in host.layout.audit.read_text().splitlines()]
    assert [event["verb"] for event in events] == ["apply", "stop"]
    assert events[0]["release"] == wanted.release and events[0]["exit"] == 0 and events[0]["user"]
    assert time.strptime(events[0]["time"], "%Y-%m-%dT%H:%M:%SZ")
