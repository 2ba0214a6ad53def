"""What became of forecasts: by how much waits turn out longer than they were told. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from statistics import median

_WINDOW = 200
_FEWEST = 20
_FIRST_SAFETY = 1.2
_MOST_SAFETY = 3.0
_NOISE_S = 0.5
"""By so much any wait may be off, however short: a share of a short one says little."""
_LATEST = 24
_FEWEST_LATEST = 8
_TELLING_S = 0.5
"""A wait that was forecast to be shorter says nothing about forecasts on the whole."""
_LEAST_BIAS, _MOST_BIAS = 0.7, 2.0


class ForecastError:
    """The last waits of some. What they are told is put right both ways; what is let in on it only upwards, since in a load
    that has just grown those that wait shortest are heard of first.
    """

    def __init__(self, quantile: float = 0.9) -> None:
        self._quantile = quantile
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self.bias = 1.0
        """How many times as long as was forecast waits have lately been: the median, between 0.7 and 2."""

    def observe(self, forecast_s: float, actual_s: float) -> None:
        """Somebody's wait was forecast to take ``forecast_s`` when it came, and it had its turn after ``actual_s``."""
        if forecast_s >= _TELLING_S:
            self._latest.append(actual_s / forecast_s)
            if len(self._latest) >= _FEWEST_LATEST:
                self.bias = min(max(median(self._latest), _LEAST_BIAS), _MOST_BIAS)
        ratio = (actual_s + _NOISE_S) / (self._firm_s(forecast_s) + _NOISE_S)
        if len(self._recent) == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(ratio)
        insort(self._sorted, ratio)

    def at_most_s(self, forecast_s: float) -> float:
        """What a wait of so many seconds may come to: ``quantile`` of the last ones kept to that. At most about thrice as much."""
        ratio = _FIRST_SAFETY
        if len(self._sorted) >= _FEWEST:
            ratio = min(max(self._sorted[int(self._quantile * (len(self._sorted) - 1))], 1.0), _MOST_SAFETY)
        return (self._firm_s(forecast_s) + _NOISE_S) * ratio - _NOISE_S

    def _firm_s(self, forecast_s: float) -> float:
        return forecast_s * max(self.bias, 1.0)
