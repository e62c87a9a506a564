"""The benchmark: its statistics against enumeration, its flow on stand-in servers, its figures on the real engine.

Deliberate breakages that a test here catches: a host not brought back, or its releases pruned (`test_a_host_is_brought_back`);
greedy outputs that differ (`test_another_output_is_counted`).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import instance, inventory, pairs, ports, verbs
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.layout import Layout
from deploy.sandbox import Sandbox
from deploy.slot import ENGINE, single
from deploy.supervisor import marked
from tests.deploy import world
from tools.bench import __main__ as command
from tools.bench import compare, measure, page, run, servers, stats
from tools.bench.document import load
from tools.cli import UserError
from tools.paths import REPO


def options(*words: str) -> argparse.Namespace:
    return command.parser().parse_args(["run", *words])


@given(st.permutations(range(8)), st.integers(1, 7))
def test_chance_is_the_share_of_all_orders(order: list[int], size: int) -> None:
    """The oracle: every way to pick the first kind's ranks out of all, and how many are as uneven as this one."""

    def uneven(first: tuple[int, ...]) -> float:
        wins = sum(x > y for x in first for y in range(8) if y not in first)
        return abs(wins - size * (8 - size) / 2)

    first, rest = tuple(order[:size]), order[size:]
    every = list(itertools.combinations(range(8), size))
    assert stats.chance(first, rest) == pytest.approx(sum(uneven(one) >= uneven(first) for one in every) / len(every))


def test_ties_are_no_difference_and_few_rounds_prove_nothing() -> None:
    assert stats.chance([5.0] * 6, [5.0] * 6) == 1
    assert stats.chance([1, 2, 3], [4, 5, 6]) >= stats.LEVEL > stats.chance([1, 2, 3, 4], [5, 6, 7, 8])
    assert stats.rounds_needed() == 4


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entry]:
    """A host of stand-in servers, which serves `root`; the benchmark's own servers have their root and port of the test's."""
    monkeypatch.setattr(pairs, "ROOT", tmp_path)
    monkeypatch.setattr(servers, "CACHE", tmp_path)
    monkeypatch.setattr(servers, "single", lambda *_: single(ports.free()))
    made = world.make_entry(tmp_path / "root", budget=15)
    world.make_pair(tmp_path / "pair")
    (tmp_path / "pair" / "prompts.json").write_text(json.dumps([[1, 2, 3], [4, 5], [6], [7, 8]]))
    yield made
    for root in (made.root, tmp_path / "bench" / "root"):
        for folder in Layout(root).runs.glob("*"):
            instance.stop(folder, 0)


@pytest.fixture
def gather(tmp_path: Path) -> Callable[..., Callable[[Entry], Inputs]]:
    """Makes what takes `inputs.gather`'s place; `gather(LOSSY=True)`: a DDTREE server that does so."""
    return lambda **wrong: lambda wished: world.make_inputs(tmp_path, wished, **(wrong if wished.algorithm == "DDTREE" else {}))


SMALL = ("--batches", "1,2", "--budgets", "15", "--rounds", "2", "--prompts", "4", "--tokens", "6")


def check(document: dict) -> None:
    """What holds in every document."""
    load = document["load"]
    for server in document["servers"]:
        assert [(cell["temperature"], cell["batch"]) for cell in server["cells"]] == list(
            itertools.product(load["temperatures"], load["batches"])
        )
        for cell in server["cells"]:
            assert len(cell["rounds"]) == load["rounds"]
            assert {one["tokens"] for one in cell["rounds"]} == {load["prompts"] * load["tokens"]}
            speeds = [one["tokens"] / one["seconds"] for one in cell["rounds"]]
            assert cell["tokens_per_second"]["low"] == min(speeds) <= cell["tokens_per_second"]["median"]
            assert cell["tokens_per_second"]["median"] <= cell["tokens_per_second"]["high"] == max(speeds)
            assert (cell["accept_length"] is None) == (server["algorithm"] == "NONE")
        assert bool(server["trees"]) == (server["algorithm"] == "DDTREE")
        for request in server["trees"]:
            for step in request["steps"]:
                assert len(step["tokens"]) == len(step["parents"]) == len(step["scores"])
                path = [0, *step["accepted"]]
                assert [step["parents"][node] for node in path[1:]] == path[:-1]
                assert all(str(token) in request["texts"] for token in [*step["tokens"], step["bonus"]])


def test_from_servers_to_page(entry: Entry, gather, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.run(entry, options(*SMALL, "--out", str(tmp_path / "made" / "x")), gather()) == 0
    shown = capsys.readouterr()
    document = json.loads((tmp_path / "made" / "x.json").read_text())
    check(document)
    assert [server["name"] for server in document["servers"]] == ["no speculation", "DFLASH", "DDTREE(15)"]
    assert len({server["release"] for server in document["servers"]}) == 3
    assert [server.get("equal") for server in document["servers"]] == [None, *[{"outputs": 8, "of": 8}] * 2]
    # Four prompts one by one take four times 0.25 s, in pairs twice.
    speeds = [cell["tokens_per_second"]["median"] for cell in document["servers"][0]["cells"]]
    assert speeds == [24, 48, 24, 48] and document["servers"][1]["cells"][1]["step_ms"]["median"] == 125
    assert "DDTREE(15)" in shown.out and "24 (24-24)" in shown.out and "8 of 8" in shown.out
    assert "DFLASH: T=1, batch 2, warm-up" in shown.err and "\x1b" not in shown.out + shown.err
    text = (tmp_path / "made" / "x.html").read_text()
    assert '"DDTREE(15)"' in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not list((tmp_path / "bench" / "root" / "run").glob("*/pid")) and not entry.root.exists()
    assert marked(Layout(tmp_path / "bench" / "root").run(ENGINE)) == []


def test_another_output_is_counted(entry: Entry, gather, tmp_path: Path, capsys) -> None:
    assert run.run(entry, options(*SMALL, "--json", "--out", str(tmp_path / "x")), gather(LOSSY=True)) == 0
    assert [server.get("equal") for server in json.loads(capsys.readouterr().out)["servers"]][1:] == [
        {"outputs": 8, "of": 8},
        {"outputs": 0, "of": 8},
    ]


def test_a_server_that_does_not_start_is_named_and_nothing_is_left(entry: Entry, gather, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)^DDTREE: .*ended while it started \(exit status 1\).*this build crashes"):
        run.run(entry, options(*SMALL, "--out", str(tmp_path / "x")), gather(CRASH=True))
    assert not (tmp_path / "x.json").exists()
    assert marked(Layout(tmp_path / "bench" / "root").run(ENGINE)) == []


@pytest.mark.parametrize("wrong", [{}, {"CRASH": True}], ids=["sound", "crashes"])
def test_a_host_is_brought_back(entry: Entry, gather, capsys, wrong: dict) -> None:
    """Taking over, as with ALL=1, on a host that serves."""
    host, good = Sandbox(entry), gather()(entry)
    assert verbs.apply(host, good, json=True) == 0
    before = host.facts()
    wished = [gather(**wrong)(setting.of(entry)) for setting in servers.settings([7])]
    served = []
    try:
        with servers.turn(host) as serve:
            for one in wished:
                served.append(serve(one).ask("/model_info", timeout=20)["weight_version"])
                assert host.facts().current == good.release
    except UserError as error:
        assert wrong and "this build crashes" in str(error)
    assert served == [one.release for one in wished][: len(served)] and len(served) == (2 if wrong else 3)
    after = host.facts()
    assert after.serves(good.release) and after.releases == before.releases
    setting, found = servers.serving(host)
    assert (str(setting), found.release, found.start) == ("DDTREE(15)", good.release, None)


def test_a_host_whose_server_could_not_be_brought_back_is_left_alone(entry: Entry, gather, capsys) -> None:
    host, good = Sandbox(entry), gather()(entry)
    assert verbs.apply(host, good, json=True) == 0
    (host.layout.verdicts / f"{good.release}.json").unlink()  # as if it had never been proved
    with pytest.raises(UserError, match="could not be brought back: `make apply HOST=sandbox`"), servers.turn(host):
        pass
    assert host.facts().serves(good.release)
    host.stop(ENGINE)
    with pytest.raises(UserError, match="no server answers on sandbox: `make apply HOST=sandbox`"):
        servers.serving(host)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--batches", "1,one"], "'1,one' is not a list of different whole numbers from 1 to 4096"),
        (["run", "--batches", "2,2"], "'2,2' is not a list of different"),
        (["run", "--temperatures", "-1"], "not a list of different numbers from 0 to 100"),
        (["run", "--rounds", "0"], "'0' is not a whole number from 1 to 30"),
        (["run", "--batches", "16"], "BATCHES has 16, the server takes 8 at once (max-running-requests)"),
        (["run", "--prompts", "4"], "BATCHES has 8, which needs as many prompts: PROMPTS is 4"),
        (["run", "--prompts", "400"], "PROMPTS is 400, the pair qwen3-tiny has 64"),
        (["run", "--all"], "ALL=1 is for hosts over SSH"),
        (["run", "--host", "nobody"], "hosts.toml has no host 'nobody'"),
        (["run", "--out", ""], "OUT names no file"),
        (["run", "--out", "README.md/x"], "the measurement can't be written to README.md/x"),
        (["compare", "--b", "one.json"], "two measurements are needed, the JSON files of two runs: A=one.json B=other.json"),
        (["compare", "--a", "absent.json", "--b", "x"], "absent.json can't be read"),
        (["compare", "--a", "README.md", "--b", "x"], "README.md is not JSON"),
        (["compare", "--a", "snapshot/0.5.11/manifest.json", "--b", "x"], "not a measurement of this"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], says: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tools.bench", *words], cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1


def test_the_benchmarks_own_server_has_the_ranks_and_a_port_that_there_is() -> None:
    for port, own in ((30000, 30500), (ports.HIGHEST, ports.HIGHEST - 500)):
        given = dataclasses.replace(inventory.load(), slots=(single(port, 2),))
        assert servers.own(given).slots == (single(own, 2),)


def test_make_passes_every_option_on_zeros_as_well() -> None:
    words = ["HOST=x", "ALL=1", "TEMPERATURES=0", "ROUNDS=0", "BATCHES=1,2", "OUT=a b"]
    said = subprocess.run(["make", "-n", "bench", *words], cwd=REPO, capture_output=True, text=True, timeout=60, check=True)
    expected = "--host x --all --batches 1,2 --temperatures 0 --rounds 0 --out a b"
    assert " ".join(said.stdout.split("tools.bench run")[1].replace("'", "").split()) == expected


def made(speeds: list[float], name: str = "DFLASH") -> dict:
    rounds = [measure.Round(1.0, int(speed), 10) for speed in speeds]
    load = {"temperatures": [0], "batches": [1], "rounds": len(speeds), "prompts": 1, "tokens": 1}
    cells = [measure.cell(0, 1, rounds, [[1]])]
    server = {"algorithm": "DFLASH", "budget": None, "name": name, "release": "r", "cells": cells, "trees": []}
    return {"format": 1, "host": "h", "pair": "p", "when": "w", "load": load, "servers": [server]}


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([100, 101, 102, 103, 104], [110, 111, 112, 113, 114], "faster"),
        ([110, 111, 112, 113, 114], [100, 101, 102, 103, 104], "slower"),
        ([100, 102, 104, 106, 108], [101, 103, 105, 107, 109], "no difference"),
        ([100, 101, 102], [200, 201, 202], "too few rounds"),
    ],
)
def test_a_comparison_says_what_is_more_than_chance(a, b, verdict: str, capsys) -> None:
    (row,) = compare.rows(made(a), made(b))
    assert row["verdict"] == verdict and row["ratio"] == pytest.approx(sorted(b)[len(b) // 2] / sorted(a)[len(a) // 2])
    assert compare.run(made(a), made(b), json=False) == 0
    assert verdict in capsys.readouterr().out
    with pytest.raises(UserError, match="have no server, temperature and batch size in common"):
        compare.run(made(a), made(b, "another"), json=False)


@pytest.mark.parametrize("part", ["load", "host", "cells", "rounds", "tokens_per_second", "median", "seconds"])
def test_a_measurement_that_is_not_whole_is_refused(tmp_path: Path, part: str) -> None:
    def without(value: object) -> object:
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key != part}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    file = tmp_path / "x.json"
    file.write_text(json.dumps(made([100, 101])))
    load(file)
    file.write_text(json.dumps(without(made([100, 101]))))
    with pytest.raises(UserError, match=r"x\.json is not a measurement of this benchmark"):
        load(file)


def test_a_page_holds_its_document_whatever_the_tokens_are() -> None:
    document = made([100])
    document["host"] = "</script><b>\u2028"
    text = page.render(document)
    assert "</script><b>" not in text and "\u2028" not in text
    held = text.split("const D = ", 1)[1].split(";\nconst", 1)[0]
    assert json.loads(held)["host"] == document["host"] and "outputs" not in held


def test_figures_of_the_real_engine(tmp_path: Path, monkeypatch, capsys) -> None:
    """The reference figures of the pair: verify steps of the paper's code for 16 prompts; and the trees are the outputs."""
    monkeypatch.setattr(servers, "CACHE", tmp_path)
    monkeypatch.setattr(servers, "single", lambda *_: single(ports.free()))
    entry = inventory.load()
    words = ("--batches", "8", "--temperatures", "0", "--budgets", "22", "--rounds", "1", "--prompts", "16", "--tokens", "129")
    assert run.run(dataclasses.replace(entry), options(*words, "--json", "--out", str(tmp_path / "x"))) == 0
    document = json.loads(capsys.readouterr().out)
    check(document)
    plain, chain, tree = document["servers"]
    assert [server["equal"] for server in (chain, tree)] == [{"outputs": 16, "of": 16}] * 2
    assert abs(chain["cells"][0]["rounds"][0]["steps"] - 620) <= 2 and tree["cells"][0]["rounds"][0]["steps"] == 470
    assert plain["cells"][0]["rounds"][0]["steps"] == 0
    for request, tokens in zip(tree["trees"], plain["cells"][0]["outputs"], strict=False):
        said = [[step["tokens"][node] for node in step["accepted"]] + [step["bonus"]] for step in request["steps"]]
        assert [request["steps"][0]["tokens"][0], *itertools.chain(*said)] == tokens
        assert all(
            len(step["tokens"]) == 23 and set(step["ms"]) == {"draft", "tree", "verify", "accept"} for step in request["steps"]
        )
