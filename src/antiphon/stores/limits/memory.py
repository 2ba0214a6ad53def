"""Limits of one process. Time is the process's monotonic clock, so a wall clock that is set changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.core.clock import Clock
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Limit, Outcome, Reservation, Standing, Verdict
from antiphon.stores.limits.base import Spent
from antiphon.stores.limits.tally import Tally

_SWEPT_EVERY_MS = 60_000


class MemoryLimiter:
    """Forgets with its process: ``recall`` gives it the memory of an account of use, so that a restart is no fresh allowance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tallies: dict[TenantId, Tally] = {}
        self._sweep_at_ms = self._now_ms() + _SWEPT_EVERY_MS

    def recall(self, spent: Iterable[Spent]) -> None:
        """Charge what was used before this limiter was made. Before any other call."""
        now_ms = self._now_ms()
        for one in sorted(spent, key=lambda one: -one.age_ms):
            self._tally(one.outcome.tenant_id).reconcile(one.outcome, now_ms - one.age_ms)

    def hold(self, reservations: Iterable[Reservation]) -> None:
        """Hold what was granted before this limiter was made, whatever its limits say now."""
        for reservation in reservations:
            self._tally(reservation.tenant_id).hold(reservation, self._now_ms())

    async def reserve(self, reservation: Reservation) -> Verdict:
        now_ms = self._swept_ms()  # before the tenant is looked up: it may have been at rest, and forgotten just now
        return self._tally(reservation.tenant_id).reserve(reservation, now_ms)

    async def renew(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        return self._tally(tenant_id).renew(generation_id, self._now_ms())

    async def reconcile(self, outcome: Outcome) -> bool:
        return self._tally(outcome.tenant_id).reconcile(outcome, self._now_ms())

    async def release(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        return self._tally(tenant_id).release(generation_id, self._now_ms())

    async def standings(self, tenant_id: TenantId, limits: Sequence[Limit]) -> tuple[Standing, ...]:
        return self._tally(tenant_id).standings(limits, self._now_ms())

    async def close(self) -> None:
        pass

    def check(self) -> None:
        """Raises ``AssertionError`` where the parts contradict each other."""
        for tally in self._tallies.values():
            tally.check()

    def _tally(self, tenant_id: TenantId) -> Tally:
        tally = self._tallies.get(tenant_id)
        if tally is None:
            tally = self._tallies[tenant_id] = Tally()
        return tally

    def _swept_ms(self) -> int:
        """The time; once a minute, tenants who rest are forgotten."""
        now_ms = self._now_ms()
        if now_ms >= self._sweep_at_ms:
            self._sweep_at_ms = now_ms + _SWEPT_EVERY_MS
            self._tallies = {tenant_id: tally for tenant_id, tally in self._tallies.items() if not tally.idle(now_ms)}
        return now_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
