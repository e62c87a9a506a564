"""The whole road on the real engine: the pinned SGLang with the whole series, on a CPU, supervised, asked over HTTP.

One story, since each start of the engine takes its time: a first release, an apply that changes nothing, a lossy release
that the semantic gate sends back, a second release, a rollback, a stop.
"""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import inputs, instance, inventory, ports, staging, verbs
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.layout import Layout
from deploy.sandbox import Sandbox
from deploy.slot import ENGINE, single
from deploy.supervisor import marked

#: The first drafted token is taken whether the target agrees or not.
WALK = "sglang/srt/speculative/ddtree_utils.py"
SOUND, LOSSY = "    match[:, 0] = True\n", "    match[:, :2] = True\n"


@pytest.fixture
def entry(tmp_path: Path) -> Iterator[Entry]:
    """The repository's sandbox, with a root and a port of the test's own."""
    made = dataclasses.replace(inventory.load(), root=tmp_path / "root", slots=(single(ports.free()),))
    yield made
    instance.stop(Layout(made.root).run(ENGINE), 0)


def lossy(good: Inputs, folder: Path) -> Inputs:
    """The same inputs with one line of the patched tree changed, as a series with a bad patch would give."""
    staging.link_tree(good.tree, folder)
    file = folder / WALK
    source = file.read_text()
    assert source.count(SOUND) == 1
    file.unlink()  # it is a link to the sound tree's
    file.write_text(source.replace(SOUND, LOSSY))
    sha = staging.hashes(file.parent)[file.name]
    return dataclasses.replace(
        good,
        tree=folder,
        files={**good.files, WALK: sha},
        touched={**good.touched, WALK: sha},
        digests={**good.digests, "series": f"lossy {sha}"},
    )


def post(host: Sandbox, path: str, body: dict) -> dict:
    """A request as a user sends it."""
    request = urllib.request.Request(
        host.endpoint(ENGINE) + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return json.load(answer)


def test_apply_again_lossy_rollback_status_stop(entry: Entry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host, first = Sandbox(entry), inputs.gather(entry)
    assert first.patches, "the series is empty: there is nothing to prove"

    def said() -> dict:
        return json.loads(capsys.readouterr().out)

    assert verbs.apply(host, first, json=True) == 0, capsys.readouterr()
    report = said()
    assert report["release_served"] == report["release"] == first.release
    assert report["accept_length"] > 2 and len(report["completion"]) > 20
    steps = {step["step"]: step["detail"] for step in report["steps"]}
    assert re.fullmatch(r"8 of 8 probes equal, accept length [2-9]\.\d\d", steps["probe"])
    loaded = re.fullmatch(r"(\d+) modules in 3 processes, (\d+) of (\d+) patched files loaded", steps["prove"])
    assert loaded and int(loaded[1]) > 500
    # All but `ddtree_step.py`, which only a GPU needs.
    assert int(loaded[2]) == int(loaded[3]) - 1

    body = {"model": first.pair.name, "prompt": verbs.PROMPT, "max_tokens": 16, "temperature": 0}
    answer = post(host, "/v1/completions", body)
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["metadata"]["weight_version"] == first.release

    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}, "ok": {"type": "boolean"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema | {"required": ["n", "ok"]}}}
    choice = post(host, "/v1/completions", body | {"max_tokens": 200, "response_format": wanted})["choices"][0]
    assert choice["finish_reason"] == "stop" and set(json.loads(choice["text"])) == {"n", "ok"}

    pid = host.instance(ENGINE).pid
    assert verbs.apply(host, inputs.gather(entry), json=False) == 0
    assert f"nothing changes: release {first.release} is current and serves" in capsys.readouterr().out
    assert host.instance(ENGINE).pid == pid

    bad = lossy(first, tmp_path / "lossy")
    assert verbs.apply(host, bad, json=True) == 3
    report = said()
    assert report["ending"] == "rolled back" and "probes differ from the target alone" in report["failure"]
    facts = host.facts()
    assert (facts.current, facts.instance(ENGINE).release, facts.instance(ENGINE).live) == (first.release, first.release, True)
    assert facts.verdicts[bad.release].proved is False

    second = inputs.gather(dataclasses.replace(entry, budget=15))
    assert verbs.apply(host, second, json=True) == 0
    assert said()["release_served"] == second.release
    assert verbs.rollback(host, None, json=True) == 0
    assert said()["release_served"] == first.release

    assert verbs.tell(verbs.state(host), json=True) == 0
    report = said()
    assert (report["current"], report["previous"]) == (first.release, second.release)
    assert report["serves"] and report["proved"] and report["accept_length"] > 2

    assert verbs.stop(host, json=True) == 0
    assert marked(host.layout.run(ENGINE)) == [] and host.instance(ENGINE).state == "stopped"
    audit = [json.loads(line) for line in host.layout.audit.read_text().splitlines()]
    assert [(event["verb"], event.get("exit")) for event in audit] == [
        ("apply", 0),
        ("apply", 0),
        ("apply", 3),
        ("apply", 0),
        ("rollback", 0),
        ("stop", None),
    ]
