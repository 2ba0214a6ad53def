"""How long an answer will be, learned online from those that ended, for each kind of request. Pure.

An answer that its limit cut off says only that it would have been longer, so lengths are estimated as survival times are:
by the product-limit estimator (Kaplan and Meier, «Nonparametric estimation from incomplete observations», JASA 1958), over
bins that grow with the length, the past fading.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from antiphon.inference.ask import Ask

_BINS: tuple[int, ...] = tuple(sorted({max(index, round(1.12**index)) for index in range(1, 88)}))
"""Upper ends of the bins, in tokens, up to about 19,000; those below 40 hold one length each."""
_FADE = 0.995
_FEWEST = 12.0
"""With fewer observations a kind is estimated from all kinds together; with fewer of all, an answer is expected to be as
long as it may."""
_MOST_KINDS = 256
_LONG = 0.9


@dataclass(frozen=True, slots=True)
class LengthEstimate:
    """``mean`` tokens of an answer, and ``long``: nine of ten are at most that."""

    mean: float
    long: int


class _Lengths:
    """Faded counts of answers that ended (``ends``) and that were seen at all (``seen``), by bin."""

    def __init__(self) -> None:
        self.ends = [0.0] * len(_BINS)
        self.seen = [0.0] * len(_BINS)
        self.weight = 0.0
        self._unit = 1.0

    def observe(self, tokens: int, *, cut: bool) -> None:
        """New observations grow instead of old ones shrinking; now and then everything is scaled back."""
        index = min(bisect_left(_BINS, max(tokens, 1)), len(_BINS) - 1)
        self._unit /= _FADE
        self.weight = self.weight * _FADE + 1.0
        self.seen[index] += self._unit
        if not cut:
            self.ends[index] += self._unit
        if self._unit > 1e6:
            self.ends = [value / self._unit for value in self.ends]
            self.seen = [value / self._unit for value in self.seen]
            self._unit = 1.0

    def estimate(self, so_far: int, most: int) -> LengthEstimate:
        at_risk = sum(self.seen)
        alive, mean, before, long = 1.0, float(so_far), so_far, 0
        for end, ended, seen in zip(_BINS, self.ends, self.seen, strict=True):
            if end > so_far:
                here = min(end, most)
                mean += alive * max(here - before, 0)
                before = here
                if at_risk > 1e-9:
                    alive *= max(1.0 - ended / at_risk, 0.0)
                if long == 0 and alive <= 1.0 - _LONG:
                    long = here
                if end >= most:
                    break
            at_risk -= seen
        else:
            mean += alive * max(most - before, 0)
        return LengthEstimate(min(max(mean, so_far + 1.0), float(most)), long or most)


class LengthEstimator:
    """One model's lengths. Before it has seen anything, it expects the maximum."""

    def __init__(self) -> None:
        self._all = _Lengths()
        self._kinds: dict[str, _Lengths] = {}

    def observe(self, ask: Ask, tokens: int, *, cut: bool) -> None:
        """An answer to ``ask`` ended with ``tokens``; ``cut``: by its limit, not by itself."""
        self._all.observe(tokens, cut=cut)
        kind = feature_bucket(ask)
        lengths = self._kinds.get(kind)
        if lengths is None:
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            lengths = self._kinds[kind] = _Lengths()
        lengths.observe(tokens, cut=cut)

    def estimate(self, ask: Ask, so_far: int = 0) -> LengthEstimate:
        """For an answer that has ``so_far`` tokens and may have ``ask.output_tokens``."""
        most = max(ask.output_tokens, so_far + 1)
        lengths = self._kinds.get(feature_bucket(ask), self._all)
        if lengths.weight < _FEWEST:
            lengths = self._all
        if lengths.weight < _FEWEST:
            return LengthEstimate(float(most), most)
        return lengths.estimate(so_far, most)


def feature_bucket(ask: Ask) -> str:
    """Requests that are alike: of one kind, with prompts of the same order of length."""
    return f"{ask.kind}/{ask.prompt_tokens.bit_length() // 2}"
