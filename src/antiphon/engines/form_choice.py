"""Which of two forms of a model computes decode rows, learned from the steps that were run. Pure."""

from __future__ import annotations

from statistics import median

_SAMPLES = 8
_UNTRIED_ROWS = 4
"""From so many rows on unpacked weights were faster with two threads (0.9 times at four, 0.8 at eight)."""


class FormChoice:
    """For about as many rows (2 and 3, 4 to 7, 8 to 15, …) both forms are tried in turn; the faster one stays.

    One row is always computed packed: then it is the memory that a step waits for, and whoever is alone gets the same text
    each time.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, tuple[list[float], list[float]]] = {}
        self._unpacked: dict[int, bool] = {}

    def unpacked(self, rows: int) -> bool:
        """Whether the form with unpacked weights computes the next step of so many rows."""
        about = rows.bit_length()
        if rows == 1 or about in self._unpacked:
            return self._unpacked.get(about, False)
        packed, unpacked = map(len, self._seconds.get(about, ((), ())))
        return unpacked < packed if packed != unpacked else rows >= _UNTRIED_ROWS

    def observe(self, rows: int, unpacked: bool, seconds: float) -> None:
        """Learn from a step."""
        about = rows.bit_length()
        if rows == 1 or about in self._unpacked:
            return
        both = self._seconds.setdefault(about, ([], []))
        both[unpacked].append(seconds / rows)
        if min(map(len, both)) >= _SAMPLES:
            self._unpacked[about] = median(both[True]) < median(both[False])
            del self._seconds[about]
