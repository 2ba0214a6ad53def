"""What became of forecasts: by how much waits turn out longer than they were told. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

_WINDOW = 200
_FEWEST = 20
_FIRST_SAFETY = 1.2
_MOST_SAFETY = 2.0
_SHORTEST_S = 0.1


class ForecastError:
    """The last waits of some. Whether a wait is within a limit is asked of the forecast times ``safety``; ``quantile`` of them
    are to be.
    """

    def __init__(self, quantile: float = 0.9) -> None:
        self._quantile = quantile
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def observe(self, told_s: float, actual_s: float) -> None:
        """Somebody was told ``told_s`` at first and had its turn after ``actual_s``."""
        if actual_s < _SHORTEST_S and told_s < _SHORTEST_S:
            return
        ratio = actual_s / max(told_s, _SHORTEST_S)
        if len(self._recent) == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(ratio)
        insort(self._sorted, ratio)

    @property
    def safety(self) -> float:
        """``quantile`` of the waits are at most so many times what was told; between 1 and 2."""
        if len(self._sorted) < _FEWEST:
            return _FIRST_SAFETY
        return min(max(self._sorted[int(self._quantile * (len(self._sorted) - 1))], 1.0), _MOST_SAFETY)
