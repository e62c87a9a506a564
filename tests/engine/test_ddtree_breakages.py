"""DDTREE broken on purpose, once for each family of mistakes known from other implementations, and what catches each.

Every row of `BREAKAGES` is one change to the patched tree and the check that must see it. The same checks pass on the tree
as it is: in `test_ddtree_pieces.py`, `test_ddtree_slots.py`, `test_ddtree_shards.py`, and for the rest in
`test_checks_pass_on_the_tree_as_it_is`. `test_ddtree.py` has four more that need an engine, `test_ddtree_sampling.py` two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.checking import check
from tests.engine.test_ddtree_pieces import UTILS
from tests.engine.test_ddtree_shards import CASES

INFO = "sglang/srt/speculative/dflash_info.py"
WORKER = "sglang/srt/speculative/dflash_worker.py"


def builds(tree: Path) -> bool:
    """Trees are the heap's."""
    return not check(tree, "tree_build", requests=80, seed=1, implementation="torch")["mismatches"]


def walks(tree: Path) -> bool:
    """Masks and walks are the obvious ones."""
    return not check(tree, "tree_walk", requests=80, seed=3, implementation="torch")["mismatches"]


def keeps_slots(tree: Path) -> bool:
    """The model of all KV slots agrees."""
    return check(tree, "slots", steps=400, seed=1, size=70)["wrong"] is None


def shards(tree: Path) -> bool:
    """Four ranks find the whole vocabulary's best tokens."""
    return all(answer["right"] and answer["same"] for answer in check(tree, "head_topk", ranks=4, cases=CASES))


def ranks_agree(tree: Path) -> bool:
    """Two ranks whose targets break ties differently commit the same tokens."""
    return check(tree, "verify_ranks", seed=1)["same"]


def commits_states(tree: Path) -> bool:
    """Recurrent states are committed and tracked at the right node."""
    return not check(tree, "mamba_commit")["wrong"]


def samples(tree: Path) -> bool:
    """What a sampled verify commits has the target's distribution."""
    return check(tree, "node_samples", seed=1)["right"]


@dataclass(frozen=True)
class Breakage:
    mistake: str
    file: str
    old: str
    new: str
    caught_by: Callable[[Path], bool]


BREAKAGES = [
    Breakage(
        "the mask is left out", INFO,
        "            self.custom_mask = build_ddtree_verify_mask(\n",
        "            self.custom_mask = None and build_ddtree_verify_mask(\n",
        keeps_slots,
    ),
    Breakage(
        "children are listed youngest first", UTILS,
        "    return _first(is_child), _first(is_sibling)\n",
        "    youngest = torch.where(is_child, nodes, -1).amax(dim=2)\n    return youngest, _first(is_sibling)\n",
        builds,
    ),
    Breakage(
        "parents keep their index from before the sort", UTILS,
        "    parents = node_of.gather(1, parents.gather(1, order))\n",
        "    parents = parents.gather(1, order).clamp(max=budget)\n",
        builds,
    ),
    Breakage(
        "equal scores go to the deeper node", UTILS,
        "    order = torch.sort(scores, dim=1, descending=True, stable=True).indices\n    order = order[:, : budget + 1]\n",
        "    scores = scores + depths * 1e-6\n"
        "    order = torch.sort(scores, dim=1, descending=True, stable=True).indices\n    order = order[:, : budget + 1]\n",
        builds,
    ),
    Breakage(
        "token 0 is taken for padding", UTILS,
        "    match[:, 0] = True\n",
        "    match &= tree.tokens != 0\n    match[:, 0] = True\n",
        walks,
    ),
    Breakage(
        "a node is accepted without its parent", UTILS,
        "    accepted = ~(ancestors_or_self(tree) & ~match.unsqueeze(1)).any(dim=2)\n",
        "    accepted = match.clone()\n",
        walks,
    ),
    Breakage(
        "one node too many is accepted", UTILS,
        "    accept_len = accepted.sum(dim=1, dtype=torch.int32) - 1\n",
        "    accept_len = accepted.sum(dim=1, dtype=torch.int32).clamp(max=accepted.shape[1] - 1)\n",
        keeps_slots,
    ),
    Breakage(
        "slots stay in node order", INFO,
        "                batch.out_cache_loc.view(bs, -1).gather(1, self.path_order).view(-1)\n",
        "                batch.out_cache_loc\n",
        keeps_slots,
    ),
    Breakage(
        "hidden states stay in node order", INFO,
        "        if self.path_order is not None:\n            hidden",
        "        if False:\n            hidden",
        keeps_slots,
    ),
    Breakage(
        "the slots kept are freed", INFO,
        "            batch.token_to_kv_pool_allocator.free(out_cache_loc[~keep_mask])\n",
        "            batch.token_to_kv_pool_allocator.free(out_cache_loc[keep_mask])\n",
        keeps_slots,
    ),
    Breakage(
        "rejected slots are never freed", INFO,
        "            batch.token_to_kv_pool_allocator.free(out_cache_loc[~keep_mask])\n",
        "",
        keeps_slots,
    ),
    Breakage(
        "tokens after the end are kept", INFO,
        "            if req.finished():\n                break\n",
        "",
        keeps_slots,
    ),
    Breakage(
        "the bonus token is the root's", INFO,
        "                1, self.path_order.gather(1, accept_len.to(torch.int64).unsqueeze(1))\n",
        "                1, self.path_order.gather(1, 0 * accept_len.to(torch.int64).unsqueeze(1))\n",
        keeps_slots,
    ),
    Breakage(
        "token ids are a shard's own", UTILS,
        "        ids + int(shard.org_vocab_start_index),\n",
        "        ids,\n",
        shards,
    ),
    Breakage(
        "a shard's padding counts", UTILS,
        "    logits = torch.matmul(hidden_states, weight[:num_org].T).float()\n",
        "    num_org = int(shard.num_org_elements_padded)\n"
        "    logits = torch.matmul(hidden_states, weight[:num_org].T).float()\n",
        shards,
    ),
    Breakage(
        "log-probabilities are over the best tokens only", UTILS,
        "    values, ids = torch.topk(logits, min(k, logits.shape[1]), dim=1)\n",
        "    values, ids = torch.topk(logits, min(k, logits.shape[1]), dim=1)\n"
        "    lse = torch.logsumexp(values, dim=1, keepdim=True)\n",
        shards,
    ),
    Breakage(
        "each rank decides alone", INFO,
        "                tp_group.broadcast(target_predict, src=0)\n",
        "                pass\n",
        ranks_agree,
    ),
    Breakage(
        "recurrent states are committed by length", WORKER,
        "            accepted_steps = path_order.gather(1, accepted_steps.unsqueeze(1)).squeeze(1)\n",
        "            pass\n",
        commits_states,
    ),
    Breakage(
        "recurrent states are tracked by length", WORKER,
        "                    mamba_steps_to_track >= 0, nodes_to_track, mamba_steps_to_track\n",
        "                    mamba_steps_to_track >= 0, mamba_steps_to_track, mamba_steps_to_track\n",
        commits_states,
    ),
    Breakage(
        "sampling is argmax", UTILS,
        "    if sampling_info is None or sampling_info.is_all_greedy:\n",
        "    if True:\n",
        samples,
    ),
    Breakage(
        "a request's nodes take the next request's temperature", UTILS,
        "        return None if x is None else torch.repeat_interleave(x, width, dim=0)\n",
        "        return None if x is None else x.repeat(width, *[1] * (x.dim() - 1))\n",
        samples,
    ),
]  # fmt: skip


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.mistake.replace(" ", "-"))
def test_caught(mutated_tree, breakage: Breakage) -> None:
    assert not breakage.caught_by(mutated_tree(breakage.file, breakage.old, breakage.new))


@pytest.mark.parametrize("passes", dict.fromkeys(breakage.caught_by for breakage in BREAKAGES), ids=lambda check: check.__name__)
def test_checks_pass_on_the_tree_as_it_is(patched_tree: Path, passes: Callable[[Path], bool]) -> None:
    assert passes(patched_tree)
