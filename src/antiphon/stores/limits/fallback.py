"""Limits while the shared driver is away: each server alone grants a share, and what was used is told to the driver afterwards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Limit, Outcome, Rate, Reservation, Standing, Verdict
from antiphon.stores.limits.base import Limiter

log = structlog.get_logger(__name__)
T = TypeVar("T")

_AWAY_S = 2.0
_OWED = 10_000


class FallbackLimiter:
    """``shared`` where it answers, else ``local`` with ``share`` of every limit (at least one of each).

    A driver that did not answer is left alone for two seconds, so that an outage costs callers no waiting. The last ten thousand
    outcomes of an outage are kept and told when the driver is back; it knows each generation, so once is once.
    """

    def __init__(self, shared: Limiter, local: Limiter, clock: Clock, *, share: float) -> None:
        self._shared = shared
        self._local = local
        self._clock = clock
        self._share = share
        self._away_until = 0.0
        self._owed: OrderedDict[GenerationId, Outcome] = OrderedDict()

    async def reserve(self, reservation: Reservation) -> Verdict:
        alone = replace(reservation, limits=tuple(_shared_out(limit, self._share) for limit in reservation.limits))
        return await self._ask(lambda: self._shared.reserve(reservation), lambda: self._local.reserve(alone))

    async def renew(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        await self._local.renew(tenant_id, generation_id)
        return await self._ask(lambda: self._shared.renew(tenant_id, generation_id), lambda: self._local.renew(tenant_id, generation_id))

    async def reconcile(self, outcome: Outcome) -> bool:
        await self._local.release(outcome.tenant_id, outcome.generation_id)
        return await self._ask(lambda: self._shared.reconcile(outcome), lambda: self._owe(outcome))

    async def release(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        here = await self._local.release(tenant_id, generation_id)
        return await self._ask(lambda: self._shared.release(tenant_id, generation_id), lambda: _known(here))

    async def standings(self, tenant_id: TenantId, limits: Sequence[Limit]) -> tuple[Standing, ...]:
        alone = [_shared_out(limit, self._share) for limit in limits]
        return await self._ask(lambda: self._shared.standings(tenant_id, limits), lambda: self._local.standings(tenant_id, alone))

    async def close(self) -> None:
        await self._shared.close()
        await self._local.close()

    async def _ask(self, shared: Callable[[], Awaitable[T]], local: Callable[[], Awaitable[T]]) -> T:
        if self._clock.monotonic() >= self._away_until:
            try:
                await self._pay()
                return await shared()
            except StoreUnavailable:
                if not self._away_until:
                    log.warning("limits_away", share=self._share)
                self._away_until = self._clock.monotonic() + _AWAY_S
        return await local()

    async def _pay(self) -> None:
        """Tell the driver what it missed, the oldest first."""
        while self._owed:
            generation_id, outcome = next(iter(self._owed.items()))
            await self._shared.reconcile(outcome)
            self._owed.pop(generation_id, None)
        if self._away_until:
            self._away_until = 0.0
            log.info("limits_back")

    async def _owe(self, outcome: Outcome) -> bool:
        fresh = outcome.generation_id not in self._owed
        self._owed[outcome.generation_id] = outcome
        while len(self._owed) > _OWED:
            self._owed.popitem(last=False)
        return fresh and await self._local.reconcile(outcome)


async def _known(answer: bool) -> bool:
    return answer


def _shared_out(limit: Limit, share: float) -> Limit:
    match limit:
        case Rate():
            return replace(limit, per_minute=max(1, int(limit.per_minute * share)))
        case Concurrency() | Cap():
            return replace(limit, most=max(1, int(limit.most * share)) if limit.most else 0)
        case Budget():
            return replace(limit, most_nanos=int(limit.most_nanos * share))
