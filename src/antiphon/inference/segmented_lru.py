"""A least-recently-used order that one scan through much new data cannot empty. Pure.

Segmented LRU (Karedla, Love and Wherry, 1994): what was used once is on *probation*, what was used again is *protected*.
The next victim is the oldest on probation; only when there is none, the oldest protected one. A full protected segment
gives its oldest back to probation.
"""

from __future__ import annotations

PROTECTED_SHARE = 0.8
"""Of all places, how many the protected segment may fill."""


class SegmentedLru:
    """Keys that can be given up, in order. Every operation is O(1); a key is in at most once."""

    __slots__ = ("_most_protected", "_probation", "_protected")

    def __init__(self, places: int) -> None:
        self._most_protected = int(places * PROTECTED_SHARE)
        self._probation: dict[int, None] = {}
        self._protected: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._probation) + len(self._protected)

    def __contains__(self, key: int) -> bool:
        return key in self._probation or key in self._protected

    def add(self, key: int, *, protected: bool) -> int | None:
        """Add as the most recent. Returns the key that lost its protection for it, if any."""
        if not protected:
            self._probation[key] = None
            return None
        self._protected[key] = None
        if len(self._protected) <= self._most_protected:
            return None
        demoted = next(iter(self._protected))
        del self._protected[demoted]
        self._probation[demoted] = None
        return demoted

    def remove(self, key: int) -> None:
        """Take out a key that is in."""
        if key in self._probation:
            del self._probation[key]
        else:
            del self._protected[key]

    @property
    def oldest(self) -> int | None:
        """The next victim."""
        for segment in (self._probation, self._protected):
            for key in segment:
                return key
        return None

    def in_order(self) -> list[int]:
        """All keys, the next victim first; O(n), for checks."""
        return [*self._probation, *self._protected]
