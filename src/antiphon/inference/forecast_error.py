"""What became of forecasts: by how much waits turn out longer than they were told. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from statistics import median

_WINDOW = 200
_FEWEST = 20
_FIRST_SAFETY = 1.2
_MOST_SAFETY = 2.0
_SHORTEST_S = 0.1
_LATEST = 24
_FEWEST_LATEST = 8
_TELLING_S = 0.5
"""A wait that was forecast to be shorter says nothing about forecasts on the whole."""
_MOST_BIAS = 2.0


class ForecastError:
    """The last waits of some. Whether a wait is within a limit is asked of the forecast times ``safety``; ``quantile`` of them
    are to be.
    """

    def __init__(self, quantile: float = 0.9) -> None:
        self._quantile = quantile
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._latest: deque[float] = deque(maxlen=_LATEST)

    def observe(self, told_s: float, actual_s: float, *, forecast_s: float | None = None) -> None:
        """Somebody was told ``told_s`` at first, put right from ``forecast_s``, and had its turn after ``actual_s``."""
        if forecast_s is not None and forecast_s >= _TELLING_S:
            self._latest.append(actual_s / forecast_s)
        if actual_s < _SHORTEST_S and told_s < _SHORTEST_S:
            return
        ratio = actual_s / max(told_s, _SHORTEST_S)
        if len(self._recent) == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(ratio)
        insort(self._sorted, ratio)

    @property
    def bias(self) -> float:
        """How many times as long as was forecast waits have lately been: the median, between 1 and 2."""
        if len(self._latest) < _FEWEST_LATEST:
            return 1.0
        return min(max(median(self._latest), 1.0), _MOST_BIAS)

    @property
    def safety(self) -> float:
        """``quantile`` of the waits are at most so many times what was told; between 1 and 2."""
        if len(self._sorted) < _FEWEST:
            return _FIRST_SAFETY
        return min(max(self._sorted[int(self._quantile * (len(self._sorted) - 1))], 1.0), _MOST_SAFETY)
