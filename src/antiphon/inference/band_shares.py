"""What each band is owed whatever higher ones want: a part of all that is served while it has something waiting. Pure."""

from __future__ import annotations

from antiphon.core.tenancy import Band

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
