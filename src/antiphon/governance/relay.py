"""From the outbox to the ledger: what generations cost leaves the store's outbox by a route, at least once, and is marked.

A relay that dies between the two sends again, and the ledger knows what it has. A record that nobody can read keeps no other waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.core.usage import UsageRecord
from antiphon.stores.usage.adding import readable_records
from antiphon.stores.usage.base import Outbox, OutboxEntry, Route

log = structlog.get_logger(__name__)

BATCH = 500
"""Entries in memory at once, however many wait."""

_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 15.0
_KEPT = timedelta(days=1)


async def _nothing(_records: Sequence[UsageRecord]) -> None:
    pass


class Relay:
    """``on_sent`` learns of every record that has left, some perhaps twice."""

    def __init__(
        self, outbox: Outbox, route: Route, clock: Clock, on_sent: Callable[[Sequence[UsageRecord]], Awaitable[None]] = _nothing
    ) -> None:
        self._outbox = outbox
        self._route = route
        self._clock = clock
        self._on_sent = on_sent

    async def run_for_ever(self) -> None:
        """Send what waits until cancelled. An outage is waited out, more and more patiently."""
        pause, told = _PAUSE_S, False
        while True:
            try:
                await self.drain()
                await self._outbox.drop_sent(before=self._clock.now() - _KEPT, limit=BATCH)
                pause, told = _PAUSE_S, False
            except (StoreUnavailable, DiskFull) as outage:
                pause = min(_LONGEST_PAUSE_S, 2 * pause)
                if not told:
                    told = True
                    log.warning("usage_waits", reason=outage.detail)
            except Exception:  # a fault of ours must not end the relay: what is not sent is not lost
                pause = _LONGEST_PAUSE_S
                log.exception("relay_broke")
            await asyncio.sleep(pause)

    async def drain(self) -> int:
        """Send all that waits now; returns how many entries left. What comes meanwhile waits for the next time: under a steady
        load there would be no end, and a transaction for every record. Raises ``StoreUnavailable``, ``DiskFull``.
        """
        sent, left, full = 0, 1, True
        while full and left:
            entries = await self._outbox.unsent(limit=BATCH)
            full = len(entries) == BATCH
            left = await self._send(entries) if entries else 0
            sent += left
        return sent

    async def _send(self, entries: Sequence[OutboxEntry]) -> int:
        arrived = await self._route.send(entries)
        refused = [entry.number for entry in entries if entry.number not in arrived]
        if refused:
            log.error("usage_unreadable", entries=len(refused), first=refused[0])
            await self._outbox.mark_refused(refused)
        if arrived:
            await self._outbox.mark_sent(sorted(arrived), now=self._clock.now())
            await self._on_sent(tuple(readable_records([entry for entry in entries if entry.number in arrived]).values()))
        return len(arrived)
