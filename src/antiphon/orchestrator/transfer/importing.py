"""The story of an import: read a few conversations, plant them, store each in one act, and go on; a line of the report for each.

What is read and parsed runs in a thread, so the event loop goes on; two batches are held at once, one is read while the other is
stored. An import that is cut short leaves whole conversations behind, and a second one skips those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from antiphon.core.clock import Clock
from antiphon.core.errors import AntiphonError, DiskFull, StoreUnavailable
from antiphon.core.ids import ConversationId, IdSource
from antiphon.orchestrator.transfer.archive import DEFAULT_BOUNDS, Bounds
from antiphon.orchestrator.transfer.planting import Planted, plant
from antiphon.orchestrator.transfer.reading import Fault, Readable, conversations_in
from antiphon.orchestrator.transfer.source import Unreadable
from antiphon.stores.conversations.base import Owner
from antiphon.stores.transfers.base import Transfers

BATCH_CONVERSATIONS = 16
BATCH_MESSAGES = 500
BATCH_BYTES = 8 << 20
MAX_LINES = 200_000
_MAX_LINE_ID = 200

Status = Literal["imported", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one conversation of the file. ``reason`` says why it was not imported, or what had to be repaired."""

    source_id: str
    status: Status
    conversation_id: ConversationId | None = None
    messages: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    lines: tuple[Line, ...]

    def count(self, status: Status) -> int:
        return sum(line.status == status for line in self.lines)


class Importer:
    """Imports files. Stateless: many imports may run at once."""

    def __init__(self, transfers: Transfers, clock: Clock, ids: IdSource, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._transfers = transfers
        self._clock = clock
        self._ids = ids
        self._bounds = bounds

    async def run(self, owner: Owner, file: IO[bytes]) -> Report:
        """Import all of ``file``, which is at its start. Raises what the store raises; what was stored until then stays.

        A file that is none of ours ends in a report with one failed line.
        """
        source = conversations_in(file, self._bounds)
        lines: list[Line] = []
        reading = asyncio.create_task(asyncio.to_thread(self._next_batch, owner, source), name="import-reading")
        try:
            while True:
                batch = await asyncio.shield(reading)
                goes_on = batch.fault is None and bool(batch.found) and len(lines) + len(batch.found) < MAX_LINES
                if goes_on:
                    reading = asyncio.create_task(asyncio.to_thread(self._next_batch, owner, source), name="import-reading")
                lines += await self._store(batch.found)
                if goes_on:
                    continue
                fault = batch.fault
                if fault is None and batch.found:
                    fault = f"It has more than {MAX_LINES} conversations; the rest was not read."
                if fault is not None:
                    lines.append(Line("", "failed", reason=fault))
                return Report(tuple(lines))
        finally:
            # Whatever happened, nobody reads from the caller's file any more.
            await asyncio.wait({reading})

    def _next_batch(self, owner: Owner, source: Iterator[Readable | Fault]) -> _Batch:
        found: list[Planted | Fault] = []
        messages = raw_bytes = 0
        try:
            for one in source:
                if isinstance(one, Fault):
                    found.append(one)
                else:
                    raw_bytes += one.raw_bytes
                    found.append(self._planted(owner, one))
                    messages += len(one.conversation.messages)
                if len(found) >= BATCH_CONVERSATIONS or messages >= BATCH_MESSAGES or raw_bytes >= BATCH_BYTES:
                    break
        except Unreadable as error:
            return _Batch(found, error.reason)
        except OSError:
            return _Batch(found, "The file could not be read.")
        return _Batch(found)

    def _planted(self, owner: Owner, one: Readable) -> Planted | Fault:
        try:
            return plant(one.conversation, owner, self._ids, now=self._clock.now())
        except Unreadable as error:
            return Fault(error.source_id, error.reason)

    async def _store(self, batch: Sequence[Planted | Fault]) -> list[Line]:
        """All of a batch at once: writes that wait together share one commit."""
        return list(await asyncio.gather(*(self._line(one) for one in batch)))

    async def _line(self, one: Planted | Fault) -> Line:
        if isinstance(one, Fault):
            return Line(one.source_id[:_MAX_LINE_ID], "failed", reason=one.reason)
        origin, messages = one.whole.origin, len(one.whole.messages)
        assert origin is not None
        try:
            known = await self._transfers.import_conversation(one.whole)
        except (StoreUnavailable, DiskFull):
            raise
        except AntiphonError as error:
            return Line(origin.source_id, "failed", reason=str(error))
        if known is not None:
            return Line(origin.source_id, "skipped", known, messages, "It is here already.")
        return Line(origin.source_id, "imported", one.whole.head.id, messages, " ".join(one.notes) or None)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was read; an empty one is the end. ``fault`` ends the file after it."""

    found: list[Planted | Fault]
    fault: str | None = None
