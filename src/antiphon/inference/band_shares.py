"""What each band is owed whatever higher ones want: a part of all that is served while it has something waiting. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

from antiphon.core.tenancy import Band

T = TypeVar("T")

BAND_SHARE = {Band.HIGH: 0.0, Band.STANDARD: 0.3, Band.LOW: 0.15, Band.BATCH: 0.03}
"""Of what is served in all. The highest band goes first anyway."""
_MOST_OWED_TURNS = 4.0


class BandShares:
    """Deficit counters (Shreedhar and Varghese, «Efficient fair queueing using deficit round robin», SIGCOMM 1995): a band
    collects its part of everything that others are served, and goes first once that pays for its next request.
    """

    def __init__(self) -> None:
        self._owed = dict.fromkeys(Band, 0.0)

    def owes(self, band: Band, tokens: float) -> bool:
        """Whether the band's next request, of ``tokens``, is due before all others."""
        return self._owed[band] >= tokens

    def served(self, band: Band, tokens: float, waiting: frozenset[Band]) -> None:
        """A request of ``band`` was started, while something waited in ``waiting``. Who has nothing waiting is owed nothing."""
        for other in Band:
            if other is band:
                self._owed[other] = max(self._owed[other] - tokens, 0.0)
            elif other in waiting:
                self._owed[other] = min(self._owed[other] + BAND_SHARE[other] * tokens, _MOST_OWED_TURNS * tokens)
            else:
                self._owed[other] = 0.0

    def copy(self) -> BandShares:
        twin = BandShares()
        twin._owed = dict(self._owed)
        return twin


def order_of_bands(
    lines: Mapping[Band, Sequence[tuple[int, T]]], shares: BandShares, newcomer_tokens: int
) -> tuple[list[T], dict[Band, int]]:
    """All of ``lines``, each with its tokens, in the order in which they are served; and how many of them are served before a
    newcomer of each band, who wants ``newcomer_tokens`` and comes last in its line. ``shares`` is not changed.
    """
    shares = shares.copy()
    left = {band: deque(lines.get(band, ())) for band in sorted(Band, reverse=True)}
    found: list[T] = []
    before: dict[Band, int] = {}
    while len(left) > 1:
        wanted = {band: line[0][0] if line else newcomer_tokens for band, line in left.items()}
        first = next((band for band, tokens in wanted.items() if shares.owes(band, tokens)), next(iter(left)))
        if not left[first]:
            before[first] = len(found)
            del left[first]
            continue
        tokens, item = left[first].popleft()
        shares.served(first, tokens, frozenset(left))
        found.append(item)
    for band, line in left.items():  # the last: nobody else wants anything
        found += [item for _, item in line]
        before[band] = len(found)
    return found, before
