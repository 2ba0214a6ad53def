"""How fast a line moves, and when those that are refused should come back. Pure."""

from __future__ import annotations

import hashlib

from antiphon.core.tenancy import Band

_HALF_LIFE_S = 10.0
SHORTEST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
_JITTER = 0.2


class DrainMeter:
    """Starts per second while somebody waits: what the replicas can take, not what is asked of them. An exponential mean."""

    def __init__(self) -> None:
        self._starts = 0.0
        self._seconds = 0.0
        self._at: float | None = None
        self._waiting = False

    def update(self, now: float, *, waiting: bool, started: float = 0) -> None:
        """Tell it after each change: whether somebody waits from now on, and how many have just left the line for a replica."""
        self._pass(now)
        if started and self._waiting:
            self._starts += started
        self._waiting = waiting

    def rate(self, now: float) -> float | None:
        """Starts per second; falls while the line stands still. ``None``: nobody has ever waited for long enough to tell."""
        self._pass(now)
        if self._seconds < 0.05 or (self._starts == 0 and self._seconds < 1.0):
            return None
        return self._starts / self._seconds

    def _pass(self, now: float) -> None:
        elapsed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        if self._waiting and elapsed > 0:
            fade = 0.5 ** (elapsed / _HALF_LIFE_S)
            self._starts *= fade
            self._seconds = self._seconds * fade + elapsed


class ReturnSlots:
    """Spreads those that are refused over the time it takes to serve them, so that they come back as fast as the line moves.

    Every refusal takes the next free slot of its band, as cells do in the generic cell rate algorithm (ITU-T I.371).
    """

    def __init__(self) -> None:
        self._next: dict[Band, float] = dict.fromkeys(Band, 0.0)

    def take(self, band: Band, now: float, *, soonest_s: float, rate: float | None, name: str) -> float:
        """Seconds until whoever is called ``name`` should ask again: at ``soonest_s`` or later, one each ``1 / rate``.

        The jitter is a function of ``name``: up to a fifth more.
        """
        each_s = min(1.0 / rate, LONGEST_RETRY_S) if rate else SHORTEST_RETRY_S
        slot = max(self._next[band], now + max(soonest_s, SHORTEST_RETRY_S))
        self._next[band] = min(slot + each_s, now + LONGEST_RETRY_S)
        share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
        jitter_s = min(max(each_s, _JITTER * min(slot - now, each_s * 5)), _JITTER * LONGEST_RETRY_S)
        return min(slot - now, LONGEST_RETRY_S) + jitter_s * share


class Pressure:
    """Whether a pool is in high demand, with hysteresis: on once newcomers would wait, off when they would not for a while."""

    def __init__(self, *, on_wait_s: float = 0.5, off_after_s: float = 30.0) -> None:
        self._on_wait_s = on_wait_s
        self._off_after_s = off_after_s
        self._calm_since: float | None = None
        self.high = False

    def update(self, now: float, wait_s: float) -> bool:
        """``wait_s`` is what a newcomer would wait now; returns whether demand is high."""
        if wait_s >= self._on_wait_s:
            self.high, self._calm_since = True, None
        elif self.high:
            if self._calm_since is None:
                self._calm_since = now
            if now - self._calm_since >= self._off_after_s:
                self.high, self._calm_since = False, None
        return self.high
