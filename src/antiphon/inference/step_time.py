"""How long a step takes, learned from the steps that were run. Pure.

Time is linear in what a step contains once pairs of tokens are among the terms (measured R² 0.995 and better):
``ms = a + b·rows + c·prefill + d·context + e·pairs``. Fitted online by recursive least squares with forgetting (Haykin,
Adaptive Filter Theory, chapter on RLS), on relative errors, so that short steps count as much as long ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SCALE = (10.0, 1.0, 1.0, 0.004, 0.0005)
"""Magnitude of each coefficient in ms, so that the fit is well conditioned; the prior is the same order."""
_PRIOR = (14.0, 0.45, 0.5, 0.0021, 0.00023)
_FORGETTING = 0.998
_FIRST_VARIANCE = 30.0
_MOST_VARIANCE = 300.0
_OUTLIER = 2.5
"""A step that took this many times the prediction counts as that much longer, not more: somebody else used the machine."""
_CHANGED_STEPS = 8
"""So many such steps in a row are no disturbance: the machine has become another one, and is learned anew."""
_TRUSTED_STEPS = 8
"""Before this many steps the model knows too little to call anything an outlier; what is slower by far is believed at once."""
_PLENTY_STEPS, _ALIKE_STEPS = 64, 4
_FLOOR_MS = 1e-3
_TERMS = range(5)


@dataclass(slots=True)
class StepLoad:
    """What a step contains. ``rows`` decode; ``prefill`` tokens are in longer chunks.

    ``context`` is the number of cached tokens that all sequences look back on; ``pairs`` is Σ chunk × its mean context.
    """

    rows: int = 0
    prefill: int = 0
    context: int = 0
    pairs: float = 0.0

    def add_row(self, past_tokens: int) -> None:
        self.rows += 1
        self.context += past_tokens

    def add_chunk(self, past_tokens: int, tokens: int) -> None:
        self.prefill += tokens
        self.context += past_tokens
        self.pairs += tokens * (past_tokens + tokens / 2)

    def terms(self) -> tuple[float, ...]:
        return (1.0, float(self.rows), float(self.prefill), float(self.context), self.pairs)


class StepTimeModel:
    """Predicts seconds of a step, and how many tokens fit into some."""

    def __init__(self, prior_ms: Sequence[float] = _PRIOR) -> None:
        self._weights = [value / scale for value, scale in zip(prior_ms, _SCALE, strict=True)]
        self._covariance = _uncertain()
        self._steps = 0
        self._unlike = 0
        self._unit = 1.0
        self.coefficients_ms: tuple[float, ...] = tuple(prior_ms)
        """Milliseconds per step, row, prefill token, context token and pair; none is negative."""

    def seconds(self, load: StepLoad) -> float:
        return self._milliseconds(load.terms()) / 1000

    def chunk_within(self, seconds: float, past_tokens: int) -> int:
        """The largest chunk after ``past_tokens`` that adds at most ``seconds`` to a step.

        Solves ``e/2·n² + (c + e·past)·n + d·past = budget`` for n.
        """
        _, _, per_token, per_context, per_pair = self.coefficients_ms
        left = seconds * 1000 - per_context * past_tokens
        if left <= 0:
            return 0
        linear = max(per_token + per_pair * past_tokens, _FLOOR_MS)
        if per_pair <= 0:
            return int(left / linear)
        return int((math.sqrt(linear * linear + 2 * per_pair * left) - linear) / per_pair)

    def chunk_seconds(self, past_tokens: int, tokens: int) -> float:
        """What a chunk adds to a step."""
        _, _, per_token, per_context, per_pair = self.coefficients_ms
        return (per_token * tokens + per_context * past_tokens + per_pair * tokens * (past_tokens + tokens / 2)) / 1000

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step that was run. The first one says how fast this machine is as a whole.

        Steps of decode rows alone are much alike: once many were seen, most of them are passed over.
        """
        if self._steps > _PLENTY_STEPS and load.prefill == 0 and self._steps % _ALIKE_STEPS:
            self._steps += 1
            return
        terms = load.terms()
        predicted = self._milliseconds(terms)
        actual = max(seconds * 1000, _FLOOR_MS)
        self._unlike = self._unlike + 1 if max(actual / predicted, predicted / actual) > _OUTLIER else 0
        if self._unlike >= _CHANGED_STEPS or (0 < self._steps <= _TRUSTED_STEPS and actual > _OUTLIER * predicted):
            self._steps, self._unlike, self._covariance = 0, 0, _uncertain()
        if self._steps == 0:
            self._unit *= actual / predicted
            predicted = actual
        self._steps += 1
        if self._steps > _TRUSTED_STEPS:
            actual = min(actual, _OUTLIER * predicted)
        weight = 1 / max(actual, predicted)
        inputs = [term * scale * weight * self._unit for term, scale in zip(terms, _SCALE, strict=True)]
        self._update(inputs, actual * weight)
        unit = self._unit
        self.coefficients_ms = tuple(max(value, 0.0) * scale * unit for value, scale in zip(self._weights, _SCALE, strict=True))

    def _milliseconds(self, terms: tuple[float, ...]) -> float:
        return max(sum(value * term for value, term in zip(self.coefficients_ms, terms, strict=True)), _FLOOR_MS)

    def _update(self, inputs: list[float], target: float) -> None:
        covariance = self._covariance
        projected = [sum(value * item for value, item in zip(row, inputs, strict=True)) for row in covariance]
        forgetting = _FORGETTING if max(covariance[index][index] for index in _TERMS) < _MOST_VARIANCE else 1.0
        scale = 1 / (forgetting + sum(value * item for value, item in zip(inputs, projected, strict=True)))
        error = target - sum(weight * item for weight, item in zip(self._weights, inputs, strict=True))
        for row in _TERMS:
            gain = projected[row] * scale
            self._weights[row] += gain * error
            line = covariance[row]
            for column in _TERMS:
                line[column] = (line[column] - gain * projected[column]) / forgetting
        if min(covariance[index][index] for index in _TERMS) <= 0:
            self._covariance = _uncertain()  # rounding has made it no covariance any more


def _uncertain() -> list[list[float]]:
    return [[_FIRST_VARIANCE if row == column else 0.0 for column in _TERMS] for row in _TERMS]
