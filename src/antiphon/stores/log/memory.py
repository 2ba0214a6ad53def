"""The generation log in memory alone: for tests and temporary chats. A killed process loses it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from antiphon.core.clock import Clock
from antiphon.core.events import LogEntry
from antiphon.core.ids import GenerationId
from antiphon.stores.log.base import LogSlice, LogState
from antiphon.stores.log.shelf import LOG_BYTES, LogShelf


class MemoryLog:
    """``log_seconds`` is how long a log stays after its terminal entry; ``limit_bytes`` bounds one log (see ``shelf``)."""

    def __init__(self, clock: Clock, log_seconds: float, *, limit_bytes: int = LOG_BYTES) -> None:
        self._clock = clock
        self._kept = timedelta(seconds=log_seconds)
        self._shelf = LogShelf(limit_bytes)

    async def open(self, generation_id: GenerationId, epoch: int) -> LogState:
        log = self._shelf.make(generation_id)
        log.claim(epoch)
        log.publish_epoch(epoch)
        return log.state()

    async def append(self, generation_id: GenerationId, entries: Sequence[LogEntry]) -> None:
        log = self._shelf.held(generation_id)
        log.admit(entries)
        log.publish(entries, at=self._clock.now())

    async def read(self, generation_id: GenerationId, after_seq: int, *, limit: int = 256) -> LogSlice | None:
        return self._shelf.read(generation_id, after_seq, limit)

    async def wait(self, generation_id: GenerationId, after_seq: int) -> None:
        await self._shelf.wait(generation_id, after_seq)

    async def state(self, generation_id: GenerationId) -> LogState | None:
        return self._shelf.state(generation_id)

    async def expire(self, *, now: datetime) -> int:
        return sum(self._shelf.forget(generation_id) for generation_id in self._shelf.ended_before(now - self._kept))

    async def discard(self, generation_id: GenerationId) -> None:
        self._shelf.forget(generation_id)

    async def close(self) -> None:
        pass
