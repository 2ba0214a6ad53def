"""How long an answer will probably be, learned from those that ended. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

_WINDOW = 256
_FEWEST = 24
_QUANTILE = 0.9
_AHEAD = 32
"""An answer that has outgrown the prediction is expected to go on for as many tokens more."""


class OutputLengths:
    """The last answers' lengths; until it has seen some, it expects the maximum."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, tokens: int) -> None:
        """An answer ended by itself, or at its limit, with so many tokens."""
        if len(self._recent) == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(tokens)
        insort(self._sorted, tokens)

    def expect(self, so_far: int, most: int) -> int:
        """Tokens that an answer of at most ``most`` will have in the end, given that it has ``so_far``: the 90 % quantile
        of those that were longer.
        """
        begin = bisect_left(self._sorted, so_far + 1)
        longer = len(self._sorted) - begin
        if len(self._sorted) < _FEWEST:
            return most
        if longer == 0:
            return min(so_far + _AHEAD, most)
        expected = self._sorted[begin + min(int(longer * _QUANTILE), longer - 1)]
        return min(max(expected, so_far + 1), most)
