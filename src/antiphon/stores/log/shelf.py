"""Generation logs as plain objects in memory, the part that every in-process driver shares. No I/O, no clock.

A log is bounded by bytes: beyond the bound, everything up to its last entry is folded into one ``Snapshot`` entry (see
``GenerationEntries.fold``), so that nothing a reader could have seen is lost while the memory stays of the size of the text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from antiphon.core.errors import StaleEpoch
from antiphon.core.events import Delta, Done, Failed, LogEntry, Meta, Reasoning, Retract, Snapshot
from antiphon.core.ids import GenerationId
from antiphon.stores.log.base import LogSlice, LogState

LOG_BYTES = 2 << 20

_ENTRY_BYTES = 160
_TOKEN_BYTES = 8


class GenerationEntries:
    """One generation's log. ``claimed_epoch`` and ``accepted_seq`` may run ahead of what readers see while a write is under way."""

    def __init__(self, limit_bytes: int = LOG_BYTES) -> None:
        self.claimed_epoch = 0
        self.accepted_seq = 0
        self.accepted_terminal = False
        self.epoch = 0
        self.terminal: LogEntry | None = None
        self.ended_at: datetime | None = None
        self.changed = asyncio.Event()
        self.gone = False
        self._limit_bytes = limit_bytes
        self._folded: tuple[LogEntry, ...] = ()
        self._dense: list[LogEntry] = []
        self._dense_from = 1
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._bytes = 0

    @property
    def seq(self) -> int:
        """The ``seq`` of the last entry readers can see; 0 for none."""
        return self._dense_from + len(self._dense) - 1

    def claim(self, epoch: int) -> None:
        """Refuse lower epochs from now on; raises ``StaleEpoch`` when a higher one has claimed."""
        if epoch < self.claimed_epoch:
            raise StaleEpoch
        self.claimed_epoch = epoch

    def admit(self, entries: Sequence[LogEntry]) -> None:
        """Accept ``entries`` for writing; raises ``StaleEpoch``, or ``ValueError`` when they do not continue the log."""
        seq, terminal = self.accepted_seq, self.accepted_terminal
        for entry in entries:
            if entry.epoch < self.claimed_epoch:
                raise StaleEpoch
            if entry.epoch > self.claimed_epoch:
                raise ValueError(f"epoch {entry.epoch} has not opened the log; {self.claimed_epoch} has")
            if terminal:
                raise ValueError("nothing follows a terminal entry")
            if entry.seq != seq + 1:
                raise ValueError(f"seq {entry.seq} does not follow {seq}")
            seq, terminal = entry.seq, entry.terminal
        self.accepted_seq, self.accepted_terminal = seq, terminal

    def publish(self, entries: Iterable[LogEntry], *, at: datetime) -> None:
        """Show admitted entries to readers and wake those who wait."""
        folds = False
        for entry in entries:
            self._dense.append(entry)
            self._bytes += _ENTRY_BYTES + _size_of(entry)
            self._token_ids.extend(entry.token_ids)
            self.epoch = max(self.epoch, entry.epoch)
            match entry.event:
                case Delta(text=text):
                    self._text.append(text)
                case Snapshot(text=text):
                    self._text = [text]
                    folds = self.seq > 1
                case Retract(text=text):
                    self._text = [text]
                case Done() | Failed():
                    self.terminal, self.ended_at = entry, at
                case _:
                    pass
        if folds or self._bytes > self._limit_bytes:
            self.fold()
        self.wake()

    def publish_epoch(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)

    def refill(self, whole: Sequence[LogEntry], token_ids: Sequence[int], epoch: int, *, at: datetime) -> None:
        """Hold, in an empty log, what ``folded_whole`` gave of another one; ``token_ids`` are all of that one's ids."""
        self.publish(whole, at=at)
        self._keep_folded(whole)
        self._token_ids = list(token_ids)
        self.epoch = max(self.epoch, epoch)
        self.trust_published()

    def trust_published(self) -> None:
        """Let a writer go on where the published entries end; for a log that was replayed."""
        self.claimed_epoch = max(self.claimed_epoch, self.epoch)
        self.take_back()

    def take_back(self) -> None:
        """Forget what was admitted and never published."""
        self.accepted_seq, self.accepted_terminal = self.seq, self.terminal is not None

    def fold(self) -> None:
        """Replace the entries so far by ``folded_whole``; reasoning and sources among them are no longer replayed."""
        self._keep_folded(self.folded_whole())

    def _keep_folded(self, kept: Sequence[LogEntry]) -> None:
        self._folded = tuple(kept)
        self._dense, self._dense_from = [], (kept[-1].seq if kept else 0) + 1
        self._bytes = sum(_size_of(entry) for entry in kept)
        # The snapshot itself may be as long as the bound: fold again only when as much has been added once more.
        self._limit_bytes = max(self._limit_bytes, 2 * self._bytes)

    def folded_whole(self) -> tuple[LogEntry, ...]:
        """The log as at most three entries: ``meta`` if it stands first, a snapshot of the text so far, the terminal entry."""
        entries = [*self._folded, *self._dense]
        if not entries:
            return ()
        first, last = entries[0], entries[-1]
        kept = [first] if isinstance(first.event, Meta) else []
        before_end = last.seq - 1 if last.terminal else last.seq
        if before_end > (first.seq if kept else 0):
            kept.append(LogEntry(last.epoch, before_end, Snapshot("".join(self._text))))
        if last.terminal and last is not first:
            kept.append(last)
        return tuple(kept) or (last,)

    def read(self, after_seq: int, limit: int) -> LogSlice:
        after_seq = max(after_seq, 0)
        found = [entry for entry in self._folded if entry.seq > after_seq][:limit]
        start = max(0, after_seq + 1 - self._dense_from)
        found += self._dense[start : start + limit - len(found)]
        reached = found[-1].seq if found else after_seq
        return LogSlice(tuple(found), closed=self.terminal is not None and reached >= self.seq)

    def state(self) -> LogState:
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        text = self._text[0] if self._text else ""
        return LogState(self.epoch, self.seq, text, tuple(self._token_ids), self.terminal)

    async def wait(self, after_seq: int) -> None:
        while self.seq <= after_seq and self.terminal is None and not self.gone:
            await self.changed.wait()

    def wake(self) -> None:
        """Wake all waiting readers; the next waiters wait for the next change."""
        waited, self.changed = self.changed, asyncio.Event()
        waited.set()


class LogShelf:
    """All logs of one process, by generation."""

    def __init__(self, limit_bytes: int = LOG_BYTES) -> None:
        self.logs: dict[GenerationId, GenerationEntries] = {}
        self._limit_bytes = limit_bytes

    def get(self, generation_id: GenerationId) -> GenerationEntries | None:
        return self.logs.get(generation_id)

    def make(self, generation_id: GenerationId) -> GenerationEntries:
        """The log of that generation, made now if there is none."""
        log = self.logs.get(generation_id)
        if log is None:
            log = self.logs[generation_id] = GenerationEntries(self._limit_bytes)
        return log

    def held(self, generation_id: GenerationId) -> GenerationEntries:
        """The log a writer may append to; a log that was discarded has overtaken its writer (``StaleEpoch``)."""
        log = self.logs.get(generation_id)
        if log is None:
            raise StaleEpoch
        return log

    def read(self, generation_id: GenerationId, after_seq: int, limit: int) -> LogSlice | None:
        log = self.logs.get(generation_id)
        return None if log is None else log.read(after_seq, limit)

    def state(self, generation_id: GenerationId) -> LogState | None:
        log = self.logs.get(generation_id)
        return None if log is None else log.state()

    async def wait(self, generation_id: GenerationId, after_seq: int) -> None:
        log = self.logs.get(generation_id)
        if log is not None:
            await log.wait(after_seq)

    def forget(self, generation_id: GenerationId) -> bool:
        """Drop one log and wake its readers; whether there was one."""
        log = self.logs.pop(generation_id, None)
        if log is None:
            return False
        log.gone = True
        log.wake()
        return True

    def ended_before(self, moment: datetime) -> tuple[GenerationId, ...]:
        """Logs whose terminal entry was written before ``moment``."""
        return tuple(name for name, log in self.logs.items() if log.ended_at is not None and log.ended_at < moment)


def _size_of(entry: LogEntry) -> int:
    event = entry.event
    text = event.text if isinstance(event, Delta | Reasoning | Snapshot | Retract) else ""
    return len(text) + _TOKEN_BYTES * len(entry.token_ids)
