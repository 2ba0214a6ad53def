"""Upkeep: what nobody uses any more leaves the store, with every copy of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.stores.custody.base import Custody
from antiphon.stores.log.base import GenerationLog

_BATCH = 20

log = structlog.get_logger(__name__)


class Upkeep:
    """Hides what is past its tenant's retention, and takes what was deleted ``purge_seconds`` ago out of store, index and log."""

    def __init__(self, custody: Custody, generation_log: GenerationLog, clock: Clock, *, purge_seconds: float) -> None:
        self._custody = custody
        self._log = generation_log
        self._clock = clock
        self._purge_after = timedelta(seconds=purge_seconds)

    async def run_for_ever(self) -> None:
        """Look after the store until cancelled: soon after conversations become due, and once a minute at least."""
        while True:
            try:
                await self.once()
            except (DiskFull, StoreUnavailable) as refusal:
                log.warning("upkeep_refused", reason=refusal.code)
            await asyncio.sleep(min(60.0, max(1.0, self._purge_after.total_seconds() / 2)))

    async def once(self) -> int:
        """One round; returns how many conversations left the store."""
        now = self._clock.now()
        retired = 0
        while some := await self._custody.retire(now=now, limit=_BATCH):
            retired += some
        gone = 0
        more = True
        while more:
            purged = await self._custody.purge(deleted_before=now - self._purge_after, limit=_BATCH)
            for generation_id in purged.generation_ids:
                await self._log.discard(generation_id)
            gone += purged.conversations
            more = purged.more
        if gone:
            await self._log.expire(now=now)
            await self._custody.scrub()
        if gone or retired:
            log.info("upkeep", retired=retired, purged=gone)
        return gone
