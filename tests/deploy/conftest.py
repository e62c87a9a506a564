from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import instance
from deploy.inputs import Inputs
from deploy.inventory import Entry
from deploy.layout import Layout
from deploy.sandbox import Sandbox
from tests.deploy import world


@pytest.fixture
def entry(tmp_path: Path) -> Iterator[Entry]:
    """An entry with a root and a port of its own; its server is ended whatever the test did."""
    made = world.make_entry(tmp_path / "root")
    yield made
    for run in Layout(made.root).runs.glob("*"):
        instance.stop(run, 0)


@pytest.fixture
def layout(entry: Entry) -> Layout:
    entry.root.mkdir()
    return Layout(entry.root)


@pytest.fixture
def host(entry: Entry) -> Sandbox:
    return Sandbox(entry)


@pytest.fixture
def inputs_of(tmp_path: Path, entry: Entry) -> Callable[..., Inputs]:
    """Makes inputs: `inputs_of(LOSSY=True)`."""
    return lambda **how: world.make_inputs(tmp_path, entry, **how)
