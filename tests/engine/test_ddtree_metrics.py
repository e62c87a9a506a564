"""What DDTREE counts of its trees: a request's meta_info against the trees themselves, and Prometheus against meta_info.

Deliberate breakages, each caught by a test of its own here:

* ranks in node order, not along the path     `test_caught_ranks_of_other_nodes`
* a path that comes back is on the spine      `test_caught_an_off_spine_node_taken_for_the_chains`
* a node's score from another depth           `test_caught_scores_of_other_depths`
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import overlay.site
from deploy import ports
from deploy.http import NoAnswer, ask
from overlay import engine as cpu
from tests.engine.harness import Run, generate, pair, prompts

INFO = "sglang/srt/speculative/dflash_info.py"
METRICS = "sglang/srt/speculative/ddtree_metrics.py"
TRACE = "sglang/srt/speculative/ddtree_trace.py"
#: Makes an engine print each step's trees, the target's tokens, and how many nodes it committed.
TELL_TREES = (
    "        commit_lens = torch.tensor(commit_lens_cpu, dtype=torch.int32, device=device)\n",
    "        if self.tree is not None:\n"
    "            import json\n"
    "            rows = zip((r.rid for r in batch.reqs), *(x.tolist() for x in (self.tree.tokens, self.tree.parents,\n"
    "                       target_predict)), accepted.num_accepted_drafts)\n"
    "            print('\\nTREES ' + json.dumps(list(rows)), flush=True)\n"
    "        commit_lens = torch.tensor(commit_lens_cpu, dtype=torch.int32, device=device)\n",
)
KEYS = ("spec_accept_histogram", "spec_ddtree_accept_rank_histogram", "spec_ddtree_off_spine_accepts")


def run(tree: Path) -> Run:
    """20 requests, in batches in which every other one wants its trees."""
    engine = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 15}
    sampling = [{}, {"custom_params": {"ddtree_trace": True}}] * 10
    asked = prompts("qwen3-tiny")[:20]
    return generate(tree, pair="qwen3-tiny", prompts=asked, max_new_tokens=40, engine=engine, sampling=sampling)


def path_ranks(tokens: list[int], parents: list[int], predicted: list[int]) -> list[int]:
    """The walk, the slow way: which of its siblings each accepted node is."""
    ranks, node = [], 0
    while True:
        children = [child for child in range(1, len(tokens)) if parents[child] == node]
        taken = [rank for rank, child in enumerate(children) if tokens[child] == predicted[node]]
        if not taken:
            return ranks
        ranks += taken
        node = children[taken[0]]


def counted(done: Run) -> dict[str, list]:
    """Of each request the three counts of `KEYS`, from the trees that the engine printed."""
    found: dict[str, list] = {}
    for line in re.findall(r"^TREES (.*)$", done.log.read_text(), re.MULTILINE):
        for request, tokens, parents, predicted, committed in json.loads(line):
            ranks = path_ranks(tokens, parents, predicted)[:committed]
            depths, by_rank, off = found.setdefault(request, [Counter(), Counter(), 0])
            depths[len(ranks)] += 1
            by_rank.update(ranks)
            found[request][2] = off + len(list(itertools.dropwhile(lambda rank: rank == 0, ranks)))
    return {request: [_listed(depths), _listed(by_rank), off] for request, (depths, by_rank, off) in found.items()}


def printed(done: Run) -> dict[str, list]:
    """Of each request its steps' tree tokens, parents and number of committed nodes, as the engine printed them."""
    found: dict[str, list] = {}
    for line in re.findall(r"^TREES (.*)$", done.log.read_text(), re.MULTILINE):
        for request, tokens, parents, _, committed in json.loads(line):
            found.setdefault(request, []).append((tokens, parents, committed))
    return found


def unlikely(step: dict) -> bool:
    """Whether a step's scores can't be those of its best-first tree.

    A node adds the same to its parent's score as every other of its depth and rank, and no node that was left out, as far as
    its score can be told, would have been better than one that is there.
    """
    parents, scores = step["parents"], step["scores"]
    depths, ranks = [0], [0]
    for node in range(1, len(parents)):
        depths.append(depths[parents[node]] + 1)
        ranks.append(sum(parents[elder] == parents[node] for elder in range(1, node)))
    added: dict[tuple[int, int], list[float]] = {}
    for node in range(1, len(parents)):
        added.setdefault((depths[node], ranks[node]), []).append(scores[node] - scores[parents[node]])
    if any(max(gains) - min(gains) > 1e-4 or max(gains) > 0 for gains in added.values()):
        return True
    there = {(parents[node], ranks[node]) for node in range(1, len(parents))}
    left_out = (
        scores[parent] + gains[0]
        for (depth, rank), gains in added.items()
        for parent in range(len(parents))
        if depths[parent] == depth - 1 and (parent, rank) not in there
    )
    return any(score > min(scores) + 1e-4 for score in left_out)


def _listed(counts: Counter) -> list[int]:
    return [counts[at] for at in range(max(counts, default=-1) + 1)]


def telling(tree: Path) -> Path:
    """A broken tree, made to print its trees too."""
    text = (tree / INFO).read_text()
    assert text.count(TELL_TREES[0]) == 1
    (tree / INFO).unlink()  # it may be a hard link
    (tree / INFO).write_text(text.replace(*TELL_TREES))
    return tree


def wrong(done: Run) -> int:
    """In how many requests meta_info is not what the trees say."""
    trees = counted(done)
    return sum([meta[key] for key in KEYS] != trees[meta["id"]] for meta in done.meta)


def test_meta_info_is_what_the_trees_say(mutated_tree) -> None:
    done = run(mutated_tree(INFO, *TELL_TREES))
    assert wrong(done) == 0
    assert all(meta["spec_ddtree_tree_size"] == 15 for meta in done.meta)
    assert sum(meta["spec_ddtree_off_spine_accepts"] for meta in done.meta) > 50, "hardly any, so this shows little"


def test_trace_is_the_trees(mutated_tree) -> None:
    done = run(mutated_tree(INFO, *TELL_TREES))
    trees = printed(done)
    for number, meta in enumerate(done.meta):
        trace = meta.get("spec_ddtree_trace")
        assert (trace is not None) == (number % 2 == 1)
        if trace is None:
            continue
        shown = [(step["tokens"], step["parents"], len(step["accepted"])) for step in trace]
        assert shown == trees[meta["id"]]
        said = [[step["tokens"][node] for node in step["accepted"]] + [step["bonus"]] for step in trace]
        assert done.outputs[number][1:] == list(itertools.chain(*said)), "the first token is the prefill's"
        for step in trace:
            assert [step["parents"][node] for node in step["accepted"]] == [0, *step["accepted"]][: len(step["accepted"])]
            assert list(step["ms"]) == ["draft", "tree", "verify", "accept"] and min(step["ms"].values()) > 0
            assert not unlikely(step)


def test_caught_scores_of_other_depths(mutated_tree) -> None:
    tree = mutated_tree(TRACE, "logprobs[depth - 1][rank]", "logprobs[depth - 2][rank]")
    steps = [step for meta in run(tree).meta[1::2] for step in meta["spec_ddtree_trace"]]
    assert sum(map(unlikely, steps)) > len(steps) / 2


def test_caught_ranks_of_other_nodes(mutated_tree) -> None:
    tree = mutated_tree(INFO, "self.tree.ranks.gather(1, path)", "self.tree.ranks[:, 1 : self.tree.max_depth + 1]")
    assert wrong(run(telling(tree))) >= 10


def test_caught_an_off_spine_node_taken_for_the_chains(mutated_tree) -> None:
    tree = mutated_tree(METRICS, "on_spine = on_spine and rank == 0", "on_spine = rank == 0")
    assert wrong(run(telling(tree))) >= 5


@contextmanager
def server(tree: Path, log: Path, **more: object) -> Iterator[int]:
    """The real HTTP server; its port, once it is healthy."""
    site, port, models = overlay.site.build(), ports.free(), pair("qwen3-tiny")
    flags = cpu.server_flags(models / "target", models / "drafter", port=port, **more)
    with log.open("w") as out:
        process = subprocess.Popen(
            [site.python, "-m", "sglang.launch_server", *flags],
            env=cpu.environment(tree, site.root),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 300
        while True:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            try:
                ask(port, "/health", timeout=5)
                break
            except NoAnswer:
                time.sleep(0.5)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def scrape(port: int) -> dict[str, float]:
    """The server's DDTREE metrics, by name and by bucket."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics/", headers={"Connection": "close"})
    text = connection.getresponse().read().decode()
    connection.close()
    found = {}
    for name, labels, value in re.findall(r"^sglang:spec_ddtree_(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        bucket = re.search(r'le="([^"]+)"', labels)
        found[f"{name} {bucket.group(1)}" if bucket else name] = float(value)
    return found


def test_prometheus_has_the_requests_sums(patched_tree: Path, tmp_path: Path) -> None:
    """Through the server, from the command line: `auto` (22 nodes for 4 requests), 4 ranks, a spine."""
    options = {"speculative_ddtree_budget": "auto", "speculative_ddtree_topk": 4, "speculative_ddtree_spine": True}
    options |= {"speculative_algorithm": "DDTREE", "enable_metrics": True, "max_running_requests": 4}
    with server(patched_tree, tmp_path / "log", **options) as port:
        body = {
            "input_ids": prompts("qwen3-tiny")[:20],
            "sampling_params": {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True},
        }
        answers = ask(port, "/generate", body, timeout=300)
        found = scrape(port)
    metas = [answer["meta_info"] for answer in answers]
    for name, key in (("accept_depth", KEYS[0]), ("accept_rank", KEYS[1])):
        sums = [sum(column) for column in itertools.zip_longest(*(meta[key] for meta in metas), fillvalue=0)]
        assert found[f"{name}_count"] == found[f"{name}_bucket +Inf"] == sum(sums)
        assert found[f"{name}_sum"] == sum(at * count for at, count in enumerate(sums))
        for at, total in enumerate(itertools.accumulate(sums)):
            assert found[f"{name}_bucket {float(at)}"] == total
    assert found["accept_depth_count"] == sum(meta["spec_verify_ct"] for meta in metas)
    assert found["off_spine_accepts_total"] == sum(meta[KEYS[2]] for meta in metas) > 0
    assert found["tree_size"] == 22
    assert max(len(meta[KEYS[1]]) for meta in metas) <= 4
