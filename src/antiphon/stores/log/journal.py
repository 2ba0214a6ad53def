"""The generation log in memory, with a journal on disk that a killed process replays.

Everything appended since the last write goes out in one ``write()`` (group commit) before readers see it; there is no fsync,
so a killed process loses nothing that was shown, a machine that loses power may. When the disk refuses, the text still goes
on: readers are served from memory, and what the disk missed is written in folded form as soon as it takes bytes again.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from antiphon.core.clock import Clock, from_ms, to_ms
from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.core.events import LogEntry
from antiphon.core.ids import GenerationId
from antiphon.stores.log import records
from antiphon.stores.log.base import LogSlice, LogState
from antiphon.stores.log.segments import SEGMENT_BYTES, Segments
from antiphon.stores.log.shelf import LOG_BYTES, LogShelf

_logger = structlog.get_logger(__name__)

_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A record on its way to the disk; ``publish`` shows it to readers, ``done`` tells the writer."""

    generation_id: GenerationId
    record: records.Record
    publish: Callable[[], None]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A request to remove segments that no log needs, once everything before it is written."""

    done: asyncio.Future[None]


class JournalLog:
    """Made by ``open_folder``; belongs to the event loop that made it, and alone may write to its folder."""

    def __init__(
        self, folder: Path, clock: Clock, log_seconds: float, *, limit_bytes: int = LOG_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._clock = clock
        self._kept = timedelta(seconds=log_seconds)
        self._shelf = LogShelf(limit_bytes)
        self._segments = Segments(folder, segment_bytes)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._pending: list[_Pending | _Sweep] = []
        self._flushing: asyncio.Task[None] | None = None
        self._used_by: dict[int, set[GenerationId]] = {}
        self._missed: set[GenerationId] = set()
        self._retry_at = 0.0
        self._replayed: dict[GenerationId, datetime] = {}
        self.degraded = False

    @classmethod
    async def open_folder(
        cls, folder: Path, clock: Clock, log_seconds: float, *, limit_bytes: int = LOG_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> JournalLog:
        """The journal of ``folder``, its segments replayed. Raises ``DiskFull`` or ``StoreUnavailable``."""
        log = cls(folder, clock, log_seconds, limit_bytes=limit_bytes, segment_bytes=segment_bytes)
        try:
            await asyncio.get_running_loop().run_in_executor(log._writer, log._replay)
        except OSError as error:
            log._writer.shutdown(wait=False)
            raise (DiskFull() if error.errno == errno.ENOSPC else StoreUnavailable("The log folder cannot be used.")) from error
        await log.expire(now=clock.now())
        return log

    async def open(self, generation_id: GenerationId, epoch: int) -> LogState:
        log = self._shelf.make(generation_id)
        log.claim(epoch)
        self._replayed.pop(generation_id, None)
        await self._enqueue(generation_id, records.Opened(generation_id, epoch), lambda: log.publish_epoch(epoch))
        return log.state()

    async def append(self, generation_id: GenerationId, entries: Sequence[LogEntry]) -> None:
        log = self._shelf.held(generation_id)
        log.admit(entries)
        now = self._clock.now()
        record = records.appended(generation_id, to_ms(now), entries)
        await self._enqueue(generation_id, record, lambda: log.publish(entries, at=now))

    async def read(self, generation_id: GenerationId, after_seq: int, *, limit: int = 256) -> LogSlice | None:
        return self._shelf.read(generation_id, after_seq, limit)

    async def wait(self, generation_id: GenerationId, after_seq: int) -> None:
        await self._shelf.wait(generation_id, after_seq)

    async def state(self, generation_id: GenerationId) -> LogState | None:
        return self._shelf.state(generation_id)

    async def expire(self, *, now: datetime) -> int:
        """Also forgets logs without an end that a dead process left and nobody has opened for ``log_seconds``."""
        ended = self._shelf.ended_before(now - self._kept)
        orphaned = [name for name, since in self._replayed.items() if since < now - self._kept]
        forgotten = sum([self._forget(generation_id) for generation_id in {*ended, *orphaned}])
        await self._sweep()
        return forgotten

    async def discard(self, generation_id: GenerationId) -> None:
        if self._shelf.get(generation_id) is None:
            return
        # Enqueued first: entries still under way reach the disk before the record that takes them back.
        discarded = self._enqueue(generation_id, records.Discarded(generation_id), _nothing)
        self._forget(generation_id)
        await discarded
        await self._sweep()

    async def close(self) -> None:
        self._retry_at = 0.0
        await self._sweep()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        await asyncio.get_running_loop().run_in_executor(self._writer, self._segments.rotate)
        self._writer.shutdown(wait=False)

    def _enqueue(self, generation_id: GenerationId, record: records.Record, publish: Callable[[], None]) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(generation_id, record, publish, done))
        self._start_flushing()
        return done

    async def _sweep(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self._pending.append(_Sweep(done))
        self._start_flushing()
        await done

    def _start_flushing(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="journal-flush")

    async def _flush(self) -> None:
        """Write, then show, what is pending, until nothing is. Callers may be cancelled; what they enqueued still happens."""
        batch: list[_Pending | _Sweep] = []
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                await self._settle(batch)
        finally:
            self._flushing = None
            for item in batch:
                item.done.cancel()  # nothing to do unless this task was cancelled

    async def _settle(self, batch: Sequence[_Pending | _Sweep]) -> None:
        """Write and show ``batch``, and tell everybody who waits for it how that went."""
        writes = [item for item in batch if isinstance(item, _Pending)]
        try:
            await self._persist(writes)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller who waits
            if len(batch) > 1:  # one of them is at fault; the others must not pay for it
                for item in batch:
                    await self._settle([item])
                return
            self._refuse(batch[0], error)
            return
        for item in batch:
            try:
                await self._carry_out(item)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller who waits
                self._refuse(item, error)
            else:
                if not item.done.done():
                    item.done.set_result(None)

    async def _carry_out(self, item: _Pending | _Sweep) -> None:
        if isinstance(item, _Pending):
            item.publish()
        else:
            await self._remove_unused_segments()

    def _refuse(self, item: _Pending | _Sweep, error: Exception) -> None:
        """Tell who waits for ``item`` that it did not happen, so that the same may be tried again."""
        log = self._shelf.get(item.generation_id) if isinstance(item, _Pending) else None
        if log is not None:
            log.take_back()
        if not item.done.done():
            item.done.set_exception(error)
            item.done.exception()  # a caller that was cancelled asks no more
        _logger.error("journal_failed", exc_info=error)

    async def _persist(self, batch: Sequence[_Pending]) -> None:
        """Write the batch, with what the disk missed before; when the disk refuses, remember what it misses now."""
        named = {item.generation_id for item in batch}
        if self._missed and self._clock.monotonic() < self._retry_at:
            self._missed |= named
            return
        caught_up = set(self._missed)
        to_write = [*(self._catch_up(generation_id) for generation_id in sorted(caught_up)), *(item.record for item in batch)]
        if not to_write:
            return
        try:
            number = await asyncio.get_running_loop().run_in_executor(self._writer, self._write, to_write)
        except OSError as error:
            self._missed |= named
            self._retry_at = self._clock.monotonic() + _RETRY_S
            if not self.degraded:
                _logger.warning("journal_degraded", errno=error.errno)
            self.degraded = True
            return
        except Exception as error:
            if not caught_up:
                raise
            _logger.error("journal_not_made_good", logs=len(caught_up), exc_info=error)
            self._missed -= caught_up
            await self._persist(batch)
            return
        self._missed.clear()
        living = {generation_id for generation_id in named | caught_up if self._shelf.get(generation_id) is not None}
        self._used_by.setdefault(number, set()).update(living)
        if self.degraded:
            _logger.info("journal_recovered", logs=len(caught_up))
        self.degraded = False

    def _catch_up(self, generation_id: GenerationId) -> records.Record:
        log = self._shelf.get(generation_id)
        if log is None:
            return records.Discarded(generation_id)
        at = self._clock.now() if log.ended_at is None else log.ended_at
        state = log.state()
        return records.whole(generation_id, to_ms(at), state.epoch, log.folded_whole(), state.token_ids)

    def _write(self, batch: Sequence[records.Record]) -> int:
        return self._segments.write(b"".join(map(records.encode_frame, batch)))

    def _forget(self, generation_id: GenerationId) -> bool:
        self._replayed.pop(generation_id, None)
        for users in self._used_by.values():
            users.discard(generation_id)
        return self._shelf.forget(generation_id)

    async def _remove_unused_segments(self) -> None:
        """Remove from the oldest on, so that a ``Discarded`` record outlives the entries it takes back."""
        unused: list[int] = []
        for number in sorted(self._used_by):
            if self._used_by[number]:
                break
            unused.append(number)
        for number in unused:
            try:
                await asyncio.get_running_loop().run_in_executor(self._writer, self._segments.remove, number)
            except OSError as error:
                _logger.warning("journal_segment_kept", segment=number, errno=error.errno)
                return
            del self._used_by[number]

    def _replay(self) -> None:
        now = self._clock.now()
        for number in self._segments.scan():
            data = self._segments.load(number)
            users = self._used_by.setdefault(number, set())
            whole_bytes = 0
            for record, whole_bytes in records.decode_frames(data):  # noqa: B007
                self._apply(record)
                users.add(GenerationId(record.generation_id))
            if whole_bytes < len(data):
                _logger.warning("journal_segment_cut", segment=number, bytes=len(data) - whole_bytes)
                self._segments.cut(number, whole_bytes)
        for users in self._used_by.values():
            users.intersection_update(self._shelf.logs)
        for generation_id, log in self._shelf.logs.items():
            log.trust_published()
            if log.terminal is None:
                self._replayed[generation_id] = now

    def _apply(self, record: records.Record) -> None:
        generation_id = GenerationId(record.generation_id)
        match record:
            case records.Opened(epoch=epoch):
                self._shelf.make(generation_id).publish_epoch(epoch)
            case records.Appended(at_ms=at_ms):
                log = self._shelf.make(generation_id)
                entries = records.entries_of(record)
                if entries and entries[0].seq == log.seq + 1:
                    log.publish(entries, at=from_ms(at_ms))
                elif entries:
                    _logger.warning("journal_gap", generation_id=generation_id, seq=entries[0].seq, after=log.seq)
            case records.Whole(at_ms=at_ms, epoch=epoch, token_ids=token_ids):
                self._shelf.forget(generation_id)
                self._shelf.make(generation_id).refill(records.entries_of(record), token_ids, epoch, at=from_ms(at_ms))
            case records.Discarded():
                self._shelf.forget(generation_id)


def _nothing() -> None:
    pass
