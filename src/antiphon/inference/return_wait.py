"""Whether to hold the next step back for a moment, for requests that follow on those that have just ended. Pure.

A client in a loop sends its next request within a millisecond of an answer's end. A step that has begun by then lets it
wait for all of that step. So after an end the replica listens for a moment before it plans, as disk schedulers do
(Iyer and Druschel, «Anticipatory scheduling», SOSP 2001), and stops doing so where nobody comes.
"""

from __future__ import annotations

_WEIGHT = 0.1
_WORTH = 0.2
_PROBE_EVERY = 32


class ReturnWait:
    """Learns how often somebody comes back at once."""

    def __init__(self) -> None:
        self._returning = 1.0
        self._passed = 0

    def expected(self, ended: int) -> int:
        """How many commands to wait a moment for, after ``ended`` requests ended; 0: do not wait."""
        if ended == 0:
            return 0
        if self._returning >= _WORTH:
            return ended
        self._passed += 1
        return ended if self._passed % _PROBE_EVERY == 0 else 0

    def observe(self, came: int, expected: int) -> None:
        """So many of ``expected`` came."""
        if expected:
            self._returning += _WEIGHT * (min(came / expected, 1.0) - self._returning)
