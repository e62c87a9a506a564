"""Random draft marginals: flat and peaked, with and without ties, of every depth and budget that matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

VOCABULARY = 400
#: Requests in one batch.
BATCH = 8


@dataclass(frozen=True)
class Batch:
    """The drafts of some requests: current tokens [bs], and [bs, depth, rank] log-probabilities and ids, descending."""

    roots: np.ndarray
    logprobs: np.ndarray
    ids: np.ndarray
    budget: int


def batches(count: int, seed: int, *, max_budget: int = 128, max_depth: int = 15) -> Iterator[Batch]:
    """`count` requests in batches of equal budget and depth.

    Every third batch has forced ties: its log-probabilities are multiples of 1/4, so equal sums are exactly equal.
    """
    random = np.random.default_rng(seed)
    for index in range(-(-count // BATCH)):
        budget = round(max_budget ** random.uniform())
        depth = int(random.integers(1, max_depth + 1))
        sharpness = random.uniform(0.0, 6.0, size=(BATCH, depth, 1))
        logits = random.normal(size=(BATCH, depth, VOCABULARY)) * sharpness
        logprobs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        if index % 3 == 0:
            logprobs = np.round(logprobs * 4) / 4
        ids = np.argsort(-logprobs, axis=-1, kind="stable")[..., :budget]
        yield Batch(
            roots=random.integers(VOCABULARY, size=BATCH),
            logprobs=np.take_along_axis(logprobs, ids, axis=-1).astype(np.float32),
            ids=ids,
            budget=budget,
        )
