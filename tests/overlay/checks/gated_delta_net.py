"""Run on the CPU engine's Python with SGLang: gated delta net layers under random trees, plain torch against SGLang's kernels.

Prints one line for each output and buffer: the largest difference.
"""

from __future__ import annotations

import torch
from cpu_engine import gated_delta_net
from sglang.srt.layers.attention.fla import fused_sigmoid_gating_recurrent
from sglang.srt.layers.attention.mamba import causal_conv1d_triton

N, LINES, WIDTH, HEADS, VALUE_HEADS, K, V, TAPS = 3, 5, 9, 1, 2, 16, 32, 4
CHANNELS = 2 * HEADS * K + VALUE_HEADS * V


def links(parents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First child and next sibling of each node [N, WIDTH], -1 where there is none."""
    child, sibling = torch.full_like(parents, -1), torch.full_like(parents, -1)
    for row in range(N):
        youngest: dict[int, int] = {}
        for node in range(1, WIDTH):
            parent = int(parents[row, node])
            if parent in youngest:
                sibling[row, youngest[parent]] = node
            else:
                child[row, parent] = node
            youngest[parent] = node
    return child, sibling


def main() -> None:
    torch.manual_seed(1)
    parents = torch.stack([torch.tensor([0, *(int(torch.randint(node, (1,))) for node in range(1, WIDTH))]) for _ in range(N)])
    child, sibling = links(parents)
    assert (sibling >= 0).any(dim=1).all(), "each tree has a node with two children"
    lines, rows = torch.tensor([3, 0, 4], dtype=torch.int32), torch.arange(N, dtype=torch.int32)
    mixed = torch.randn(N, WIDTH, CHANNELS).transpose(1, 2)
    weight, before = torch.randn(CHANNELS, TAPS), torch.randn(LINES, CHANNELS, TAPS - 1)
    rule = {
        "A_log": torch.randn(VALUE_HEADS),
        "dt_bias": torch.randn(VALUE_HEADS),
        "q": torch.randn(1, N * WIDTH, HEADS, K),
        "k": torch.randn(1, N * WIDTH, HEADS, K),
        "v": torch.randn(1, N * WIDTH, VALUE_HEADS, V),
        "a": torch.randn(N * WIDTH, VALUE_HEADS),
        "b": torch.randn(N * WIDTH, VALUE_HEADS),
        "initial_state_source": torch.randn(LINES, VALUE_HEADS, V, K),
    }
    found = []
    for convolve, update in (
        (gated_delta_net.causal_conv1d_update, gated_delta_net.fused_sigmoid_gating_delta_rule_update),
        (
            causal_conv1d_triton.causal_conv1d_update,
            fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update,
        ),
    ):
        state, windows = before.clone(), torch.zeros(N, WIDTH, CHANNELS, TAPS - 1)
        states, parents_found = torch.zeros(N, WIDTH, VALUE_HEADS, V, K), torch.full((N, WIDTH), 7)
        convolved = convolve(
            mixed,
            state,
            weight,
            None,
            "silu",
            conv_state_indices=lines,
            intermediate_conv_window=windows,
            intermediate_state_indices=rows,
            retrieve_next_token=child,
            retrieve_next_sibling=sibling,
            retrieve_parent_token=parents_found,
        )
        assert parents_found.tolist() == parents.tolist()
        updated = update(
            **rule,
            initial_state_indices=lines,
            cu_seqlens=torch.arange(N + 1, dtype=torch.int32) * WIDTH,
            use_qk_l2norm_in_kernel=True,
            softplus_beta=1.0,
            softplus_threshold=20.0,
            is_kda=False,
            disable_state_update=True,
            intermediate_states_buffer=states,
            intermediate_state_indices=rows,
            cache_steps=WIDTH,
            retrieve_parent_token=parents,
        )
        found.append({"convolved": convolved, "last": state, "windows": windows, "updated": updated, "states": states})
    for name, ours in found[0].items():
        difference = (ours - found[1][name]).abs().max().item()
        print(f"{name}: {difference:.1e}")
        assert difference < 1e-5, name


if __name__ == "__main__":
    main()
