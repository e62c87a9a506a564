"""The doctor's gate: what would break is not planned and not applied, and nothing is touched."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import deploy.__main__
import overlay.site
from deploy import brought, inventory
from tests.overlay import trees
from tools.cli import UserError


def test_a_scope_is_for_profiles_of_hosts() -> None:
    with pytest.raises(UserError, match="the overlay profile cpu is brought whole: leave out scope") as caught:
        brought.site(dataclasses.replace(inventory.load("sandbox"), scope="abi"))
    assert caught.value.code == 2


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_an_overlay_with_an_error_is_refused_before_any_change(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = overlay.site.Site(trees.tree(tmp_path / "site", 12), Path(sys.executable), "0" * 64)
    entry = dataclasses.replace(inventory.load("sandbox"), root=tmp_path / "sandbox")
    monkeypatch.setattr(overlay.site, "build", lambda profile: bad)
    monkeypatch.setattr(inventory, "select", lambda *_, **__: [entry])
    monkeypatch.setattr(sys, "argv", ["deploy", verb])
    with pytest.raises(UserError, match=r"the doctor finds .* so nothing is changed: .*mend: ") as caught:
        deploy.__main__.main()
    assert caught.value.code == 1
    assert not list((tmp_path / "sandbox").rglob("*")) or not list((tmp_path / "sandbox").glob("releases/*"))
