"""Plain torch for what gated delta net layers do with a draft tree, all requests at once and node after node.

Both functions take the arguments of the kernel's own launcher and leave the same in every buffer. Without a tree they call
the launcher. Batches are never padded on the CPU engine, so no cache index is negative.
"""

from __future__ import annotations

import torch


def causal_conv1d_update(
    x: torch.Tensor,  # [n, channels, width]
    conv_state: torch.Tensor,  # [lines, channels, taps - 1] inputs before the root, oldest first
    weight: torch.Tensor,  # [channels, taps]
    bias: torch.Tensor | None,  # [channels]
    activation: str | None,
    *,
    conv_state_indices: torch.Tensor,  # [n] line of each request
    intermediate_conv_window: torch.Tensor,  # [lines, width, channels, taps - 1] out: the window after each node
    intermediate_state_indices: torch.Tensor,  # [n] line of each request in it
    retrieve_next_token: torch.Tensor | None,  # [n, width] first child or -1
    retrieve_next_sibling: torch.Tensor | None,  # [n, width] next sibling or -1
    retrieve_parent_token: torch.Tensor | None,  # [n, width] out: parent, 0 for the root
) -> torch.Tensor:
    """Convolve each node with its ancestors, and past the root with the inputs before. Returns [n, channels, width]."""
    if retrieve_next_token is None:
        from sglang.srt.layers.attention.mamba import causal_conv1d_triton as kernel

        return kernel.causal_conv1d_update(
            x,
            conv_state,
            weight,
            bias,
            activation,
            conv_state_indices=conv_state_indices,
            intermediate_conv_window=intermediate_conv_window,
            intermediate_state_indices=intermediate_state_indices,
        )
    n, channels, width = x.shape
    taps, lines = weight.shape[1], conv_state_indices.long()
    parents = _parents(retrieve_next_token[:n], retrieve_next_sibling[:n])
    retrieve_parent_token[:n] = parents.to(retrieve_parent_token.dtype)

    before = conv_state[lines][:, :, : taps - 1].to(x.dtype)
    inputs = torch.cat([before, x], dim=2)
    # Where the input before each of `inputs` is: in order up to the root, then by parent.
    previous = torch.cat([torch.arange(-1, taps - 1).clamp(min=0).expand(n, -1), parents[:, 1:] + taps - 1], dim=1)
    at = torch.arange(taps - 1, taps - 1 + width).expand(n, -1)
    window = intermediate_conv_window.new_empty(n, width, channels, taps - 1)
    result = x.new_zeros(()) if bias is None else bias[:, None]
    for tap in reversed(range(taps)):
        values = inputs.gather(2, at.unsqueeze(1).expand(-1, channels, -1))
        result = result + values * weight[:, tap, None]
        if tap > 0:
            window[:, :, :, tap - 1] = values.transpose(1, 2)
        at = previous.gather(1, at)
    intermediate_conv_window[intermediate_state_indices.long(), :width] = window
    conv_state[lines, :, : taps - 1] = inputs[:, :, 1 - taps :].to(conv_state.dtype)
    if activation in ("silu", "swish"):
        result = torch.nn.functional.silu(result)
    return torch.empty_like(x).copy_(result)


def fused_sigmoid_gating_delta_rule_update(
    *,
    A_log: torch.Tensor,  # [value heads]
    dt_bias: torch.Tensor,  # [value heads]
    q: torch.Tensor,  # [1, n * width, heads, K]
    k: torch.Tensor,  # [1, n * width, heads, K]
    v: torch.Tensor,  # [1, n * width, value heads, V]
    a: torch.Tensor,  # [n * width, value heads]
    b: torch.Tensor,  # [n * width, value heads]
    initial_state_source: torch.Tensor,  # [lines, value heads, V, K]
    initial_state_indices: torch.Tensor,  # [n] line of each request
    intermediate_states_buffer: torch.Tensor,  # [lines, cache_steps, value heads, V, K] out: the state after each node
    intermediate_state_indices: torch.Tensor,  # [n] line of each request in it
    cache_steps: int,
    retrieve_parent_token: torch.Tensor | None,  # [n, width]
    **settings: object,  # of a verify, always the same
) -> torch.Tensor:
    """One step of the gated delta rule a node, each from its parent's state. Returns [1, n * width, value heads, V]."""
    if retrieve_parent_token is None:
        from sglang.srt.layers.attention.fla import fused_sigmoid_gating_recurrent as kernel

        return kernel.fused_sigmoid_gating_delta_rule_update(
            A_log=A_log,
            dt_bias=dt_bias,
            q=q,
            k=k,
            v=v,
            a=a,
            b=b,
            initial_state_source=initial_state_source,
            initial_state_indices=initial_state_indices,
            intermediate_states_buffer=intermediate_states_buffer,
            intermediate_state_indices=intermediate_state_indices,
            cache_steps=cache_steps,
            retrieve_parent_token=None,
            **settings,
        )
    n = initial_state_indices.shape[0]
    width, (heads, size_k), (value_heads, size_v) = q.shape[1] // n, q.shape[2:], v.shape[2:]
    rows, parents = torch.arange(n), retrieve_parent_token[:n].long()

    def unit(keys: torch.Tensor) -> torch.Tensor:  # [n, width, value heads, K]
        keys = keys.reshape(n, width, heads, size_k)
        keys = keys / torch.sqrt((keys * keys).sum(dim=3, keepdim=True) + 1e-6)
        return keys.repeat_interleave(value_heads // heads, dim=2)

    queries, keys = unit(q) * size_k**-0.5, unit(k)
    values = v.reshape(n, width, value_heads, size_v)
    decay = torch.exp(-torch.exp(A_log) * torch.nn.functional.softplus(a + dt_bias)).view(n, width, value_heads, 1, 1)
    strength = torch.sigmoid(b).view(n, width, value_heads, 1)
    buffer = intermediate_states_buffer.view(-1, cache_steps, value_heads, size_v, size_k)
    states = buffer.new_empty(n, width, value_heads, size_v, size_k)
    out = torch.empty_like(values)
    for node in range(width):
        state = states[rows, parents[:, node]] if node else initial_state_source[initial_state_indices.long()]
        state = state.float() * decay[:, node]
        key = keys[:, node].unsqueeze(3)
        change = (values[:, node] - (state @ key).squeeze(3)) * strength[:, node]
        state = state + change.unsqueeze(3) * key.transpose(2, 3)
        out[:, node] = (state @ queries[:, node].unsqueeze(3)).squeeze(3)
        states[:, node] = state
    buffer[intermediate_state_indices[:n].long(), :width] = states
    return out.view(1, n * width, value_heads, size_v)


def _parents(next_token: torch.Tensor, next_sibling: torch.Tensor) -> torch.Tensor:
    """Parent of each node [n, width], 0 for the root, of trees whose parents come before their children."""
    parents = torch.zeros_like(next_token, dtype=torch.long)
    rows = torch.arange(parents.shape[0])
    for node in range(parents.shape[1]):
        for linked, parent in ((next_token[:, node], torch.full_like(rows, node)), (next_sibling[:, node], parents[:, node])):
            there = linked >= 0
            parents[rows[there], linked[there].long()] = parent[there]
    return parents
