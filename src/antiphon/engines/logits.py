"""Logits before anything is drawn from them: penalties and bias, the greatest ones, log-probabilities. One row at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from antiphon.engines.base import SampleRow, TokenLogprob

_FIRST_DISTANCE = 8.0


def adjusted(logits: NDArray[np.float32], row: SampleRow, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """``out``, with the row's penalties and bias, or ``logits`` itself where it has none."""
    sampling = row.sampling
    penalised = sampling.repetition_penalty != 1.0 or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
    penalised = penalised and len(row.output_ids) > 0
    if not penalised and not sampling.logit_bias:
        return logits
    np.copyto(out, logits)
    if penalised:
        ids, counts = np.unique(np.asarray(row.output_ids, np.int64), return_counts=True)
        values = out[ids]
        values = np.where(values > 0, values / sampling.repetition_penalty, values * sampling.repetition_penalty)
        out[ids] = values - (sampling.presence_penalty + sampling.frequency_penalty * counts)
    for token_id, bias in sampling.logit_bias:
        if 0 <= token_id < len(out):
            out[token_id] += bias
    return out


def at_least(logits: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Ids, in order, of ``count`` or more of the greatest logits: all that are as great as the smallest among them."""
    top = float(logits.max())
    distance = _FIRST_DISTANCE
    while True:
        ids = np.flatnonzero(logits >= np.float32(top - distance))
        if len(ids) >= count or len(ids) == len(logits):
            return ids
        if distance > 1e6:  # what is missing is -inf
            return np.arange(len(logits))
        distance *= 2


def log_probabilities(logits: NDArray[np.float32], token_id: int, most: int) -> tuple[float, tuple[TokenLogprob, ...]]:
    """The token's own, and those of the ``most`` most probable tokens, the most probable (then the smaller id) first."""
    top = float(logits.max())
    whole = top + math.log(float(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))
    if most <= 0:
        return float(logits[token_id]) - whole, ()
    ids = at_least(logits, min(most, len(logits)))
    order = np.argsort(-logits[ids], kind="stable")[:most]
    found = tuple(TokenLogprob(int(ids[index]), float(logits[ids[index]]) - whole) for index in order)
    return float(logits[token_id]) - whole, found
