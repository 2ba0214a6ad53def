"""Whether to hold the next step back for a moment, for requests that are about to come. Pure.

A client in a loop sends its next request within a millisecond of an answer's end. A step that has begun by then lets it
wait for all of that step. So after an end the replica listens for a moment before it plans, as disk schedulers do
(Iyer and Druschel, «Anticipatory scheduling», SOSP 2001), and stops doing so where nobody comes. After the first request that
finds it idle, too: of several that are sent together, else, the first would begin alone.
"""

from __future__ import annotations

_WEIGHT = 0.1
_WORTH = 0.2
_PROBE_EVERY = 32


class ReturnWait:
    """Learns how often somebody comes at once."""

    def __init__(self) -> None:
        self._returning = 1.0
        self._passed = 0

    def expected(self, likely: int) -> int:
        """How many commands to wait a moment for, of ``likely`` ones: as many as requests have ended; 0: do not wait."""
        if likely == 0:
            return 0
        if self._returning >= _WORTH:
            return likely
        self._passed += 1
        return likely if self._passed % _PROBE_EVERY == 0 else 0

    def observe(self, came: int, expected: int) -> None:
        """So many of ``expected`` came."""
        if expected:
            self._returning += _WEIGHT * (min(came / expected, 1.0) - self._returning)
