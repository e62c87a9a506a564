"""Which nodes' recurrent states a verify commits and tracks, for every length around a track interval and every commit.

Prints {"cases", "wrong"}. The oracle goes position by position along the path: the state committed is the one after the
last committed token; the one tracked is the one after the token that ends a track interval, if a committed one does.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import torch
from sglang.srt.speculative.dflash_worker import DFlashWorker

INTERVAL, WIDTH = 8, 6


def main() -> None:
    random = torch.Generator().manual_seed(1)
    cases = [(length, commit) for length in range(1, 3 * INTERVAL) for commit in range(1, WIDTH + 1)]
    before = torch.tensor([length for length, _ in cases])
    commits = torch.tensor([commit for _, commit in cases], dtype=torch.int32)
    # Parents come before children: a path is an ascending list of nodes from the root, then come the rest.
    orders = []
    for _, commit in cases:
        path = [0, *sorted((torch.randperm(WIDTH - 1, generator=random)[: commit - 1] + 1).tolist())]
        orders.append(path + [node for node in range(WIDTH) if node not in path])
    found: dict = {}
    backend = SimpleNamespace(update_mamba_state_after_mtp_verify=lambda **arguments: found.update(arguments))
    worker = DFlashWorker.__new__(DFlashWorker)
    worker.target_worker = SimpleNamespace(model_runner=SimpleNamespace(attn_backend=backend, model=None))
    worker.server_args = SimpleNamespace(mamba_track_interval=INTERVAL)
    worker._update_target_mamba_state_after_verify(
        batch=SimpleNamespace(mamba_track_indices=torch.zeros(len(cases)), seq_lens=before + commits),
        seq_lens_pre_verify=before,
        commit_lens=commits,
        path_order=torch.tensor(orders),
    )
    wrong = []
    for row, (length, commit) in enumerate(cases):
        tracked = -1
        for step in range(commit):
            if (length + step + 1) % INTERVAL == 0:
                tracked = orders[row][step]
        if int(found["accepted_steps"][row]) != orders[row][commit - 1]:
            wrong.append(["committed", length, commit])
        if int(found["mamba_steps_to_track"][row]) != tracked:
            wrong.append(["tracked", length, commit])
    print(json.dumps({"cases": len(cases), "wrong": wrong}))


if __name__ == "__main__":
    main()
