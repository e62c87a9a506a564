"""Every mistake in the inventory is answered with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import inventory
from tools.cli import UserError

GOOD = """\
[hosts.sandbox]
transport = "local"
profile = "cpu"
pair = "qwen3-tiny"
root = ".cache/sandbox"
port = 30000
keep = 3

[hosts.sandbox.server]
device = "cpu"
disable-cuda-graph = true

[hosts.sandbox.limits]
drain = 20
accept-min = 1.5
"""


def load(folder: Path, text: str, **more: str) -> inventory.Entry:
    file = folder / "hosts.toml"
    file.write_text(text)
    return inventory.load("sandbox", file=file, **more)


def test_the_inventory_of_the_repository_is_sound() -> None:
    entry = inventory.load()
    assert (entry.name, entry.algorithm, entry.budget, entry.port) == ("sandbox", "DDTREE", 22, 30000)
    assert entry.root.is_absolute()


def test_an_entry(tmp_path: Path) -> None:
    entry = load(tmp_path, GOOD)
    assert entry.server == (("device", "cpu"), ("disable-cuda-graph", True))
    assert (entry.limits.drain, entry.limits.accept_min, entry.limits.start) == (20.0, 1.5, 300.0)
    assert load(tmp_path, GOOD, port="31000").port == 31000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("keep = 3", "keeep = 3", "hosts.toml:7: hosts.sandbox.keeep: unknown key; known: transport, "),
        ("keep = 3", "keep = 0", "hosts.toml:7: hosts.sandbox.keep: is 0, must be from 1 to 1000"),
        ("keep = 3", 'algorithm = "EAGLE"', "hosts.toml:7: hosts.sandbox.algorithm: is 'EAGLE', must be one of DDTREE, DFLASH"),
        ("port = 30000", 'port = "30000"', "hosts.toml:6: hosts.sandbox.port: is '30000', must be a whole number"),
        ("port = 30000", "port = 80", "hosts.toml:6: hosts.sandbox.port: is 80, must be from 1024 to 55535"),
        ("port = 30000", "", "hosts.toml:1: hosts.sandbox.port: is missing"),
        ('"local"', '"telnet"', "hosts.toml:2: hosts.sandbox.transport: is 'telnet', must be one of local, ssh"),
        ('"local"', '"ssh"', "hosts.toml:5: hosts.sandbox.root: is '.cache/sandbox', must be a plain absolute path on the host"),
        ("keep = 3", "sudo = true", 'hosts.toml:7: hosts.sandbox.sudo: is for hosts with transport = "ssh"'),
        ("drain = 20", "drian = 20", "hosts.toml:14: hosts.sandbox.limits.drian: unknown key; known: start, drain, answer"),
        ("drain = 20", "drain = -1", "hosts.toml:14: hosts.sandbox.limits.drain: is -1, must be a number above 0"),
        ("drain = 20", "drain = nan", "hosts.toml:14: hosts.sandbox.limits.drain: is nan, must be a number above 0"),
        ("drain = 20", "drain = inf", "hosts.toml:14: hosts.sandbox.limits.drain: is inf, must be a number above 0"),
        (".cache/sandbox", "README.md/x", "hosts.toml:5: hosts.sandbox.root: is 'README.md/x', must be a folder, or where one"),
        (".cache/sandbox", "a\\u0000b", "hosts.toml:5: hosts.sandbox.root: is 'a\\x00b', must be a folder"),
        (GOOD, "hosts = 3", "hosts.toml: hosts must be tables, [hosts.NAME]"),
        ('device = "cpu"', 'device = ["cpu"]', "hosts.toml:10: hosts.sandbox.server.device: must be a flag's name"),
        ("[hosts.sandbox]", "[hosts.other]", "hosts.toml has no host 'sandbox'; it has: other"),
        ("keep = 3", "keep = = 3", "at line 7"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = GOOD.replace(old, new, 1)
    if new == "[hosts.other]":
        text = text.split("\n\n")[0].replace("sandbox]", "other]")
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert caught.value.code == 2


def test_a_port_from_the_environment_is_checked_too(tmp_path: Path) -> None:
    for port in ("http", "²"):
        with pytest.raises(UserError, match=f"PORT is '{port}'"):
            load(tmp_path, GOOD, port=port)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_bytes(GOOD.encode() + b"# \xff\n")
    with pytest.raises(UserError, match=r"hosts\.toml: .* can't decode"):
        inventory.load("sandbox", file=tmp_path / "hosts.toml")


TWO = GOOD.split("\n\n")[0]
PAIR = f'[groups]\nboth = ["b", "a"]\n\n{TWO.replace("sandbox]", "a]")}\n\n{TWO.replace("sandbox]", "b]")}\n'


@pytest.mark.parametrize(
    ("names", "hosts"), [("a", "a"), ("a,b", "ab"), ("both", "ba"), ("a, both,a", "ab"), ("both,both", "ba")]
)
def test_hosts_and_groups_are_chosen_once_each(tmp_path: Path, names: str, hosts: str) -> None:
    (tmp_path / "hosts.toml").write_text(PAIR)
    assert [entry.name for entry in inventory.select(names, file=tmp_path / "hosts.toml")] == list(hosts)
    if "," in names and len(hosts) > 1 and "both" not in names:
        with pytest.raises(UserError, match="HOST names 2 hosts, and this is for one at a time"):
            inventory.load(names, file=tmp_path / "hosts.toml")


def test_a_local_group_takes_the_place_of_one(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(PAIR)
    (tmp_path / "hosts.local.toml").write_text('[groups]\nboth = ["a"]\n')
    assert [entry.name for entry in inventory.select("both", file=tmp_path / "hosts.toml")] == ["a"]
    (tmp_path / "hosts.local.toml").write_text('[groups]\n\nmore = ["x"]\n')
    with pytest.raises(UserError, match=r"hosts\.local\.toml:3: groups\.more: has 'x', which is no host; hosts: a, b"):
        inventory.select("both", file=tmp_path / "hosts.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["b", "a"]', '["b", "c"]', "hosts.toml:2: groups.both: has 'c', which is no host; hosts: a, b"),
        ('["b", "a"]', '"b"', "hosts.toml:2: groups.both: is 'b', must be a list of hosts' names"),
        ('["b", "a"]', "[]", "hosts.toml:2: groups.both: is [], must be a list"),
        ("both =", "a =", "hosts.toml:2: groups.a: is a host's name"),
        ("both =", "other =", "hosts.toml has no host 'both'; it has: a, b; its groups: other"),
        ("[groups]", "[group]", "hosts.toml: unknown table [group]"),
    ],
)
def test_a_mistake_in_a_group_is_named_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "hosts.toml").write_text(PAIR.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        inventory.select("both", file=tmp_path / "hosts.toml")
    assert said in str(caught.value) and caught.value.code == 2
