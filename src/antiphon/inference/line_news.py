"""What those in a pool's line hear of it, and what the metrics do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from antiphon.core import telemetry as metrics
from antiphon.core.events import Queued
from antiphon.core.telemetry import Telemetry
from antiphon.core.tenancy import Band
from antiphon.inference.pool_policy import PoolPolicy
from antiphon.inference.ticket import Ticket

_BANDS = tuple(sorted(Band, reverse=True))
_FEW = 16
"""So few in line are told at once when something changes; more, at the next tick."""


class LineNews:
    """Reads ``policy`` and ``tickets``, changes neither. ``opening_s``: how long until those that wait are served; ``None`` where
    they are.
    """

    def __init__(
        self, pool: str, policy: PoolPolicy[int], tickets: Mapping[int, Ticket], opening_s: Callable[[], float | None], telemetry: Telemetry
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._tickets = tickets
        self._opening_s = opening_s
        self._telemetry = telemetry
        self._reported: dict[Band, int] = {}

    def waiting(self) -> dict[Band, int]:
        """Requests in the line, by band."""
        return {band: self._policy.waiting(band) for band in _BANDS}

    def place(self, ticket: Ticket, now: float) -> Queued | None:
        """Where one stands that waits; ``None`` where it does not."""
        return self._place(ticket, now, self._opening_s())

    def tell(self, now: float, *, everybody: bool = False) -> None:
        """Tell those in the line what has changed for them; how long a load still takes is news to ``everybody``."""
        if everybody or self._policy.waiting_count <= _FEW:
            opening_s = self._opening_s()
            news = self._policy.standings(now)
            all_of_them = everybody and opening_s is not None
            for ticket in self._tickets.values() if all_of_them else [self._tickets[standing.key] for standing in news]:
                if (place := self._place(ticket, now, opening_s)) is not None:
                    ticket.mailbox.put(place)
        self.count()

    def count(self) -> None:
        """Keep the metrics' numbers of those that wait."""
        for band, waiting in self.waiting().items():
            if self._reported.get(band) != waiting:
                self._reported[band] = waiting
                self._telemetry.gauge(metrics.REQUESTS_WAITING, waiting, self._pool, band.name.lower())

    def _place(self, ticket: Ticket, now: float, opening_s: float | None) -> Queued | None:
        standing = self._policy.standing(ticket.number, now)
        if standing is None:
            return None
        if opening_s is None:
            return Queued(standing.position, standing.eta_ms)
        return Queued(standing.position, standing.eta_ms + round(1000 * opening_s), starting=True)
