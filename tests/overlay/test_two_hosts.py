"""CT129 runs, CT200 does not: real SSH hosts with fake libraries. The drift is named, the set found, and nothing is touched."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from overlay import profiles, solver
from overlay.doctor import gate, remote, rules, wire
from overlay.doctor import tree as reader
from overlay.doctor.facts import Facts, Host
from overlay.doctor.finding import Severity
from tests.overlay import trees
from tests.sshd import Sshd
from tools.cli import UserError
from tools.paths import REPO

CU130 = profiles.load("cu130")


def _venv(folder: Path, cuda: int) -> Path:
    """A virtual environment's folder on a host."""
    trees.tree(folder / "lib/python3.11/site-packages", cuda)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    return folder


@pytest.fixture
def hosts(sshd: Sshd, tmp_path: Path) -> dict[str, Path]:
    """Two hosts by name, and where each one's environment lies."""
    ssh = sshd.home / ".ssh"
    for name in ("ct129", "ct200"):
        sshd.configure(f"Host {name}\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {ssh}/id_ed25519\n")
    return {"ct129": _venv(tmp_path / "ct129", 13), "ct200": _venv(tmp_path / "ct200", 12)}


def _overlay(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "overlay", *arguments], cwd=REPO, capture_output=True, text=True, timeout=120)


def test_the_drift_is_named_and_the_set_that_mends_it_is_found_and_the_hosts_stay_as_they_are(
    hosts: dict[str, Path], sshd: Sshd, tmp_path: Path
) -> None:
    before = {name: trees.digest(place) for name, place in hosts.items()}
    home = {path for path in sshd.home.rglob("*")}
    examined = {}
    for name, place in hosts.items():
        saved = tmp_path / f"{name}.json"
        done = _overlay("doctor", str(place), "--host", name, "--python", sys.executable, "--json", "--save", str(saved))
        examined[name] = (done.returncode, json.loads(done.stdout))
    assert examined["ct129"][0] == 0 and examined["ct129"][1]["errors"] == 0
    code, document = examined["ct200"]
    assert code == 1 and document["torch"] == "2.11.0+cu128"
    (runtime,) = [one for one in document["findings"] if one["rule"] == "R2"]
    assert "libcudart.so.13: cannot open shared object file" in runtime["consequence"]
    assert runtime["evidence"][0]["owner"] == "sglang-kernel"

    done = _overlay("diff", "--a", str(tmp_path / "ct129.json"), "--b", str(tmp_path / "ct200.json"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert dict(found["bring"]) == {
        "cuda-bindings": "13.4.4",
        "cuda-python": "13.4.4",
        "nvidia-cuda-runtime": "13.0.96",
        "nvidia-nccl-cu13": "2.28.9",
        "sglang-kernel": "0.4.2",
        "torch": "2.11.0+cu130",
        "torchaudio": "2.11.0+cu130",
    }, "what is bound to torch, and not fastapi"
    drift = {row["name"]: (row["a"], row["b"]) for row in found["drift"]}
    assert drift["torch"] == ("2.11.0+cu130", "2.11.0+cu128")
    assert drift["nvidia-nccl-cu12"] == (None, "2.28.9")
    assert {name: trees.digest(place) for name, place in hosts.items()} == before
    assert {path for path in sshd.home.rglob("*")} == home, "the reader leaves nothing behind"


def test_the_facts_of_a_host_are_those_of_the_same_tree_here(hosts: dict[str, Path]) -> None:
    there = remote.read("ct200", str(hosts["ct200"]), sys.executable)
    here = reader.read(hosts["ct200"] / "lib/python3.11/site-packages")
    assert dataclasses.replace(there, host=None) == here
    assert there.host is not None


def test_facts_survive_the_way_as_json(tmp_path: Path) -> None:
    facts = dataclasses.replace(reader.read(trees.tree(tmp_path / "x", 13)), host=Host(driver="580.1"), maps={7: "x"})
    assert wire.decode(json.loads(json.dumps(wire.encode(facts)))) == facts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("doctor", "/nowhere", "--host", "ct200", "--python", sys.executable), "ct200: /nowhere is not a site root"),
        (("doctor", "--host", "ct200", "--python", "/no/python"), "ct200: there is no /no/python that can be run"),
        (("doctor", "--host", "ct200", "--profile", "cpu"), "--profile and --pid are of this machine"),
        (("doctor",), "name what to examine"),
    ],
)
def test_what_can_not_be_examined_is_one_sentence(hosts: dict[str, Path], arguments: tuple[str, ...], said: str) -> None:
    done = _overlay(*arguments)
    assert done.returncode in (1, 2) and done.stderr.startswith(f"error: {said}"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_document_that_holds_no_facts_is_one_sentence(tmp_path: Path) -> None:
    for text in ("", "{}", '{"form": 1}', "[1]"):
        (tmp_path / "x.json").write_text(text)
        done = _overlay("doctor", str(tmp_path / "x.json"))
        assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Facts]:
    """Facts of CT129 and CT200."""
    place = tmp_path_factory.mktemp("pair")
    return reader.read(trees.tree(place / "a", 13)), reader.read(trees.tree(place / "b", 12))


def test_with_the_set_in_front_the_doctor_is_clean(pair: tuple[Facts, Facts]) -> None:
    a, b = pair
    found = solver.solve(a, b, CU130)
    then = rules.examine(solver.after(a, b, {name for name, _ in found.bring}))
    assert [one for one in then if one.severity is Severity.ERROR] == []


def test_no_package_can_be_left_out_of_the_set_but_what_nothing_checks(pair: tuple[Facts, Facts]) -> None:
    a, b = pair
    names = {name for name, _ in solver.solve(a, b, CU130).bring}
    for name in ("torch", "nvidia-cuda-runtime", "nvidia-nccl-cu13", "cuda-bindings", "torchaudio"):
        left = rules.examine(solver.after(a, b, names - {name}))
        assert [one for one in left if one.severity is Severity.ERROR], name


def test_one_kernel_of_another_torch_is_all_that_is_brought(pair: tuple[Facts, Facts]) -> None:
    a, _ = pair
    libraries = tuple(
        dataclasses.replace(one, undefined=frozenset({trees.OLD})) if one.owner == "sglang-kernel" else one for one in a.libraries
    )
    other = tuple(dataclasses.replace(one, version="0.4.1") if one.name == "sglang-kernel" else one for one in a.distributions)
    found = solver.solve(a, dataclasses.replace(a, libraries=libraries, distributions=other), CU130)
    assert (found.bring, found.scope) == ((("sglang-kernel", "0.4.2"),), "some")


def test_between_equals_there_is_nothing_to_bring(pair: tuple[Facts, Facts]) -> None:
    assert solver.solve(pair[0], pair[0], CU130) == solver.Solution()


def test_one_host_alone_is_measured_by_the_lock(pair: tuple[Facts, Facts], tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps(wire.encode(pair[1])))
    done = _overlay("diff", "--b", str(tmp_path / "b.json"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    brought = dict(json.loads(done.stdout)["bring"])
    assert brought["torch"].startswith("2.11.0") and brought["sglang-kernel"] == "0.4.2" and "fastapi" not in brought


@pytest.mark.parametrize(
    ("change", "why", "instead"),
    [
        (lambda a, b: (b, a), "sglang 0.5.11 has no set for CUDA 12.8, since it requires cuda-python>=13.0", "the profile cu130"),
        (
            lambda a, b: (a, dataclasses.replace(b, host=Host(driver="570.86.10"))),
            "B's driver 570.86.10 is too old for CUDA 13.0, which needs branch 580",
            "driver of branch 580 or newer",
        ),
        (lambda a, b: (a, dataclasses.replace(b, python="3.13")), "B has Python 3.13", "one of these"),
        (lambda a, b: (a, dataclasses.replace(b, python="3.12")), "files are for another interpreter", "the profile cu130"),
        (
            lambda a, b: (dataclasses.replace(a, labels={**a.labels, "torchaudio": "2.11.0+cu128"}), b),
            "A is not sound itself: R1",
            "mend it first",
        ),
    ],
    ids=["cu128", "driver", "python", "interpreters", "unsound"],
)
def test_what_can_not_be_is_refused_with_the_reason_and_what_would_do(pair, change, why: str, instead: str) -> None:
    found = solver.solve(*change(*pair), CU130)
    assert found.bring == () and found.refused and found.instead
    assert why in found.refused and instead in found.instead


def test_the_gate_stops_at_an_error_and_names_what_mends_it(tmp_path: Path) -> None:
    gate.require(trees.tree(tmp_path / "good", 13))
    with pytest.raises(UserError, match=r"the doctor finds \d errors? in .*, so nothing is changed: R2: .*mend: ") as caught:
        gate.require(trees.tree(tmp_path / "bad", 12))
    assert caught.value.code == 1
