"""Upkeep: what nobody uses any more leaves the store, with every copy of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.stores.custody.base import Custody
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.temporary import TemporaryConversations

_BATCH = 20
_MOMENT = timedelta(milliseconds=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Temporary:
    """The temporary conversations, and the custody of the memory they are in."""

    conversations: TemporaryConversations
    custody: Custody


class Upkeep:
    """Hides what is past its tenant's retention, and takes what was deleted ``purge_seconds`` ago out of store, index and log.

    ``temporary`` conversations end an hour after their last use, and leave at once.
    """

    def __init__(
        self,
        custody: Custody,
        generation_log: GenerationLog,
        clock: Clock,
        *,
        purge_seconds: float,
        temporary: Temporary | None = None,
    ) -> None:
        self._custody = custody
        self._temporary = temporary
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
        if self._temporary is not None:
            await self._temporary.conversations.end_unused(now=now)
            await self._purge(self._temporary.custody, now + _MOMENT)
        await self._custody.expire_copies(now=now)
        retired = 0
        while some := await self._custody.retire(now=now, limit=_BATCH):
            retired += some
        gone = await self._purge(self._custody, now - self._purge_after)
        if gone:
            await self._log.expire(now=now)
            await self._custody.scrub()
        if gone or retired:
            log.info("upkeep", retired=retired, purged=gone)
        return gone

    async def _purge(self, custody: Custody, deleted_before: datetime) -> int:
        gone, more = 0, True
        while more:
            purged = await custody.purge(deleted_before=deleted_before, limit=_BATCH)
            for generation_id in purged.generation_ids:
                await self._log.discard(generation_id)
            gone += purged.conversations
            more = purged.more
        return gone
