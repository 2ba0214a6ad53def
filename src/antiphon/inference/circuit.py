"""Whether a replica is asked at all: a failure detector and a circuit breaker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Circuit(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class CircuitRules:
    """``failures`` in a row, without a success between, open it for ``open_s``, twice as long each time up to ``most_s``.

    A replica that has something to compute and says nothing for ``suspect_s`` gets nothing new until it speaks again.
    """

    failures: int = 3
    open_s: float = 1.0
    most_s: float = 30.0
    suspect_s: float = 2.0


class CircuitBreaker:
    """One replica's. While it is open nothing is sent there; then one probe decides."""

    def __init__(self, rules: CircuitRules | None = None) -> None:
        self._rules = rules or CircuitRules()
        self._in_a_row = 0
        self._open_for_s = 0.0
        self._until = 0.0
        self._probing = False
        self._heard_at = 0.0
        self.opened = 0
        """How often it has opened."""

    def state(self, now: float) -> Circuit:
        if self._open_for_s == 0.0:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self._until else Circuit.HALF_OPEN

    def takes(self, now: float, *, busy: bool) -> bool:
        """Whether requests may be sent there; not while it is open or half open, nor while it is suspiciously silent."""
        return self.state(now) is Circuit.CLOSED and not self.suspect(now, busy=busy)

    def suspect(self, now: float, *, busy: bool) -> bool:
        return busy and now - self._heard_at > self._rules.suspect_s

    def wants_probe(self, now: float) -> bool:
        """Whether a probe should be sent now: half open, and none is under way. Whoever sends one calls ``probed``."""
        return self.state(now) is Circuit.HALF_OPEN and not self._probing

    def probed(self) -> None:
        self._probing = True

    def opens_in_s(self, now: float) -> float:
        """Seconds until it may be tried again; 0 when it may."""
        return max(self._until - now, 0.0) if self._open_for_s else 0.0

    def heard(self, now: float) -> None:
        """It said something, or it was given its first request."""
        self._heard_at = now

    def succeeded(self) -> None:
        """A request or a probe came to its end there."""
        self._in_a_row = 0
        self._open_for_s = 0.0
        self._probing = False

    def failed(self, now: float) -> None:
        """A request or a probe failed there, or the process died while it had one."""
        self._in_a_row += 1
        probing, self._probing = self._probing, False
        if self._open_for_s == 0.0 and self._in_a_row < self._rules.failures:
            return
        if self._open_for_s and now < self._until and not probing:
            return
        self._open_for_s = min(2 * self._open_for_s or self._rules.open_s, self._rules.most_s)
        self._until = now + self._open_for_s
        self.opened += 1
