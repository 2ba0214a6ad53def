"""The next token of each row: greedy, or drawn with noise that is a pure function of (seed, position).

A draw is an inverse-CDF lookup: one uniform number per (seed, position), from splitmix64 (Steele, Lea, Flood: "Fast
splittable pseudorandom number generators", 2014), against the cumulated weights of the candidates. So a resumed, moved or
batched sequence draws what it would have drawn alone. The vocabulary is never sorted: only weights near the greatest are, and
how near doubles until they hold the nucleus. Tokens as probable as the last one that top-k or top-p takes are taken too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from antiphon.engines.base import SampleRow
from antiphon.engines.logits import adjusted, at_least

_MASK = (1 << 64) - 1
_NEAR = 6.0
"""Natural logarithm of a ratio of weights: those sorted first."""
_STRETCH = 256
_GREEDY_BELOW = 1e-3  # scaling by 1/temperature would leave float32


class Sampler:
    """Draws for one executor; keeps buffers of a vocabulary's length, because fresh ones cost more than the arithmetic.

    One thread. What it draws depends on its arguments alone.
    """

    def __init__(self, vocabulary_tokens: int) -> None:
        self._scores = np.empty(vocabulary_tokens, np.float32)
        self._weights = np.empty(vocabulary_tokens, np.float32)
        self._mask = np.empty(vocabulary_tokens, np.bool_)

    def sample(self, logits: NDArray[np.float32], rows: Sequence[SampleRow]) -> list[int]:
        """One token id per row. ``logits`` is [rows, vocabulary], unscaled; it is not changed.

        Raises ``FloatingPointError`` where a row has no finite maximum.
        """
        return [self._next(adjusted(own, row, self._scores), row) for own, row in zip(logits, rows, strict=True)]

    def _next(self, logits: NDArray[np.float32], row: SampleRow) -> int:
        sampling = row.sampling
        best = int(logits.argmax())
        top = logits[best]
        if not math.isfinite(top):
            raise FloatingPointError("the logits have no finite maximum")
        if sampling.temperature < _GREEDY_BELOW or sampling.top_k == 1:
            return best
        noise = uniform(sampling.seed, row.position)
        ids = self._candidates(logits, float(top), row)
        weights = np.subtract(logits, top, out=self._weights) if ids is None else logits[ids] - top
        np.multiply(weights, np.float32(1.0 / sampling.temperature), out=weights)
        np.exp(weights, out=weights)
        if sampling.top_p < 1.0:
            inside = self._nucleus(weights, sampling.top_p)
            ids = inside if ids is None else ids[inside]
            weights = weights[inside]
        elif ids is None:
            return _pick_from_all(weights, noise)
        return int(ids[_pick(weights, noise)])

    def _candidates(self, logits: NDArray[np.float32], top: float, row: SampleRow) -> NDArray[np.intp] | None:
        """Ids, in order, that min-p and top-k leave; ``None`` when they leave all."""
        sampling = row.sampling
        lowest = -math.inf
        if sampling.min_p > 0.0:
            lowest = top + sampling.temperature * math.log(min(sampling.min_p, 1.0))
        if 0 < sampling.top_k < len(logits):
            values = logits[at_least(logits, sampling.top_k)]
            lowest = max(lowest, float(np.partition(values, len(values) - sampling.top_k)[len(values) - sampling.top_k]))
        return None if lowest == -math.inf else np.greater_equal(logits, np.float32(lowest), out=self._mask).nonzero()[0]

    def _nucleus(self, weights: NDArray[np.float32], top_p: float) -> NDArray[np.intp]:
        """Indices, in order, of the greatest weights that together have ``top_p`` of their sum; the greatest weight is 1."""
        wanted = top_p * float(weights.sum())
        distance = _NEAR
        while True:
            near = np.greater_equal(weights, math.exp(-distance), out=self._mask[: len(weights)]).nonzero()[0]
            values = weights[near]
            descending = np.sort(values)[::-1]
            cumulated = descending.cumsum(dtype=np.float64)
            if cumulated[-1] >= wanted or len(near) == len(weights):
                border = descending[min(int(cumulated.searchsorted(wanted)), len(near) - 1)]
                return near[values >= border]
            distance *= 2


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits; equal arguments give equal numbers on every machine."""
    mixed = _splitmix64(_splitmix64(seed & _MASK) ^ (position & _MASK))
    return (mixed >> 11) * 2.0**-53


def _splitmix64(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _pick(weights: NDArray[np.float32], noise: float) -> int:
    """The index whose share of the cumulated weights holds ``noise``."""
    cumulated = weights.cumsum(dtype=np.float64)
    return min(int(cumulated.searchsorted(noise * float(cumulated[-1]), side="right")), len(weights) - 1)


def _pick_from_all(weights: NDArray[np.float32], noise: float) -> int:
    """As ``_pick``, but cumulating only stretches of the vocabulary and then the one that holds ``noise``."""
    starts = np.arange(0, len(weights), _STRETCH)
    before = np.concatenate(([0.0], np.add.reduceat(weights, starts).cumsum(dtype=np.float64)))
    wanted = noise * float(before[-1])
    stretch = min(int(np.searchsorted(before, wanted, side="right")) - 1, len(starts) - 1)
    inside = weights[starts[stretch] : starts[stretch] + _STRETCH].cumsum(dtype=np.float64)
    at = int(np.searchsorted(inside, wanted - float(before[stretch]), side="right"))
    return int(starts[stretch]) + min(at, len(inside) - 1)
