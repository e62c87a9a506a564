"""KV slots under DDTREE: none leaked, none freed twice, every table row right, over 10,000 random steps."""

from __future__ import annotations

from pathlib import Path

from tests.engine.checking import check


def test_no_slot_is_leaked_or_freed_twice_in_10000_random_steps(patched_tree: Path) -> None:
    """Prefill with radix hits, verify, finish, abort and retract in a pool so small that requests push each other out."""
    done = check(patched_tree, "slots", steps=10_000, seed=1, size=70)
    assert done.pop("wrong") is None
    assert done["steps"] == 10_000
    least = {"admitted": 1000, "finished": 1000, "aborted": 50, "retracted": 100, "hits": 1000, "off_spine": 1000}
    assert all(done[kind] >= count for kind, count in least.items()), done
