"""The next token of each row: greedy, or drawn with noise that is a pure function of (seed, position).

A draw is an inverse-CDF lookup: one uniform number per (seed, position), from splitmix64 (Steele, Lea, Flood: "Fast
splittable pseudorandom number generators", 2014), against the cumulated weights of the candidates. So a resumed, moved or
batched sequence draws what it would have drawn alone. Top-p never sorts the vocabulary: only tokens within a logit
distance of the best are sorted, and the distance doubles until they hold the nucleus. Tokens as probable as the last one
that top-k or top-p takes are taken too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from antiphon.engines.base import SampleRow

_MASK = (1 << 64) - 1
_FIRST_DISTANCE = 6.0
_STRETCH = 256
_GREEDY_BELOW = 1e-3  # scaling by 1/temperature would leave float32
_NEGLIGIBLE = 30.0
"""Natural logarithm of a ratio of weights that float32 sums cannot see over any real vocabulary."""


def sample(logits: NDArray[np.float32], rows: Sequence[SampleRow]) -> list[int]:
    """One token id per row. ``logits`` is [rows, vocabulary], unscaled; it is not changed."""
    best = logits.argmax(axis=1)
    return [
        int(best[index])
        if row.sampling.temperature < _GREEDY_BELOW or row.sampling.top_k == 1
        else _draw(logits[index], int(best[index]), row)
        for index, row in enumerate(rows)
    ]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits; equal arguments give equal numbers on every machine."""
    mixed = _splitmix64(_splitmix64(seed & _MASK) ^ (position & _MASK))
    return (mixed >> 11) * 2.0**-53


def _splitmix64(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _draw(logits: NDArray[np.float32], best: int, row: SampleRow) -> int:
    sampling = row.sampling
    noise = uniform(sampling.seed, row.position)
    top = logits[best]
    per_logit = np.float32(1.0 / sampling.temperature)
    some = 0 < sampling.top_k < len(logits)
    if sampling.top_p >= 1.0 and not some:
        return _pick_from_all(np.exp((logits - top) * per_logit), noise)
    lowest = float(top) - _NEGLIGIBLE * sampling.temperature
    if some:
        lowest = max(lowest, float(np.partition(logits, len(logits) - sampling.top_k)[len(logits) - sampling.top_k]))
    if sampling.top_p >= 1.0:
        ids, weights = _from(lowest, logits, top, per_logit)
    else:
        ids, weights = _nucleus(logits, top, per_logit, lowest, sampling.top_p)
    return int(ids[_pick(weights, noise)])


def _pick(weights: NDArray[np.float32], noise: float) -> int:
    """The index whose share of the cumulated weights holds ``noise``."""
    cumulated = weights.cumsum(dtype=np.float64)
    return min(int(np.searchsorted(cumulated, noise * float(cumulated[-1]), side="right")), len(weights) - 1)


def _pick_from_all(weights: NDArray[np.float32], noise: float) -> int:
    """As ``_pick``, but cumulating only stretches of the vocabulary and then the one that holds ``noise``."""
    starts = np.arange(0, len(weights), _STRETCH)
    before = np.concatenate(([0.0], np.add.reduceat(weights, starts).cumsum(dtype=np.float64)))
    wanted = noise * float(before[-1])
    stretch = min(int(np.searchsorted(before, wanted, side="right")) - 1, len(starts) - 1)
    inside = weights[starts[stretch] : starts[stretch] + _STRETCH].cumsum(dtype=np.float64)
    at = int(np.searchsorted(inside, wanted - float(before[stretch]), side="right"))
    return int(starts[stretch]) + min(at, len(inside) - 1)


def _nucleus(
    logits: NDArray[np.float32], top: np.float32, per_logit: np.float32, lowest: float, top_p: float
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Ids and weights of the most probable tokens, among those from ``lowest`` up, that together have ``top_p``."""
    everything = logits if lowest <= float(top) - _NEGLIGIBLE / float(per_logit) else logits[logits >= lowest]
    wanted = top_p * float(np.exp((everything - top) * per_logit).sum())
    distance = _FIRST_DISTANCE
    while True:
        reach = max(float(top) - distance / float(per_logit), lowest)
        ids, weights = _from(reach, logits, top, per_logit)
        descending = np.sort(weights)[::-1]
        cumulated = descending.cumsum(dtype=np.float64)
        if cumulated[-1] >= wanted or reach <= lowest:
            inside = weights >= descending[min(int(np.searchsorted(cumulated, wanted)), len(ids) - 1)]
            return ids[inside], weights[inside]
        distance *= 2


def _from(
    lowest: float, logits: NDArray[np.float32], top: np.float32, per_logit: np.float32
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Ids, in order, of the logits that are not below ``lowest``, with their weights relative to ``top``."""
    ids = np.flatnonzero(logits >= np.float32(lowest))
    return ids, np.exp((logits[ids] - top) * per_logit)
