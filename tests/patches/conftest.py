from pathlib import Path

import pytest

from tests.patches import world as worlds


@pytest.fixture
def world(tmp_path: Path) -> worlds.World:
    """A pristine tree and an empty series."""
    made = worlds.World(tmp_path / "world")
    worlds.lay_out(made.pristine, worlds.PRISTINE)
    made.folder.mkdir()
    made.list()
    return made
