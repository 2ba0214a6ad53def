"""Bugs to plant into the real classes, each one a mistake that is easily made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from antiphon.core.events import LogEntry
from antiphon.core.generation import GenerationStatus
from antiphon.edge.stream import EventStream
from antiphon.edge.stream import _Progress as Progress
from antiphon.orchestrator import turn as turn_module
from antiphon.orchestrator import turn_prompt
from antiphon.orchestrator.coalescer import Coalescer
from antiphon.orchestrator.readers import Readership
from antiphon.orchestrator.turn import Turn
from antiphon.orchestrator.writer import LogWriter
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.log.shelf import GenerationEntries
from antiphon.stores.memory import OutboxRow

Plant = Callable[[], AbstractContextManager[object]]


def _no_epoch_check() -> AbstractContextManager[object]:
    """A writer that was overtaken goes on: neither log nor store compares epochs."""

    def claim(self: GenerationEntries, epoch: int) -> None:
        self.claimed_epoch = max(self.claimed_epoch, epoch)

    def admit(self: GenerationEntries, entries: Sequence[LogEntry]) -> None:
        self.accepted_seq, self.accepted_terminal = entries[-1].seq, entries[-1].terminal

    def held(self: MemoryGenerations, generation_id: Any, epoch: int) -> Any:
        return self._state.generations[generation_id]

    return _patched((GenerationEntries, "claim", claim), (GenerationEntries, "admit", admit), (MemoryGenerations, "_held", held))


def _snapshot_without_cursor() -> AbstractContextManager[object]:
    """Text and cursor of a log's state are read in two steps."""

    def torn(real: Any) -> Any:
        async def state(self: Any, generation_id: Any) -> Any:
            text = await real(self, generation_id)
            await asyncio.sleep(0.15)
            cursor = await real(self, generation_id)
            return cursor if text is None or cursor is None else replace(cursor, text=text.text)

        return state

    return _patched((MemoryLog, "state", torn(MemoryLog.state)), (JournalLog, "state", torn(JournalLog.state)))


def _done_before_finalise() -> AbstractContextManager[object]:
    """The log gets its end before the store has it."""
    real = Turn._finalise

    async def finalise(self: Turn, finished: Any) -> None:
        ending = turn_module.Ending(finished.status, finished.usage, finish_reason=finished.finish_reason, error=finished.error)
        await self._writer.append(turn_module.terminal_event(self._generation, ending, ttft_ms=None, duration_ms=0), forever=True)
        await real(self, finished)

    return _patched((Turn, "_finalise", finalise))


def _sweeper_without_compare_and_set() -> AbstractContextManager[object]:
    """Whoever sees a generation takes it, whether or not somebody has it, and the epoch stays."""

    async def claim(self: MemoryGenerations, generation_id: Any, *, now: Any, lease_until: Any) -> Any:
        generation = self._state.generations.get(generation_id)
        if generation is None or generation.status.terminal:
            return None
        claimed = replace(generation, status=GenerationStatus.RUNNING, epoch=max(1, generation.epoch), lease_until=lease_until)
        self._state.generations[generation_id] = claimed
        return claimed

    return _patched((MemoryGenerations, "claim", claim))


def _lost_wake_up() -> AbstractContextManager[object]:
    """A reader looks, then begins to listen; what comes in between is not heard."""

    async def wait(self: GenerationEntries, after_seq: int) -> None:
        if self.seq <= after_seq and self.terminal is None and not self.gone:
            await asyncio.sleep(0.01)
            await self.changed.wait()

    return _patched((GenerationEntries, "wait", wait))


def _coalescer_drops_ids() -> AbstractContextManager[object]:
    """Ids whose text is still incomplete are thrown away with the empty text."""
    real = Coalescer.add

    def add(self: Coalescer, token_ids: tuple[int, ...], text: str) -> None:
        real(self, token_ids if text else (), text)

    return _patched((Coalescer, "add", add))


def _terminal_written_twice() -> AbstractContextManager[object]:
    """An append whose answer was late is repeated, and nobody looks for an end that is there."""
    real = LogWriter.append

    async def append(self: LogWriter, *events: Any, token_ids: tuple[int, ...] = (), forever: bool = False) -> None:
        await real(self, *events, token_ids=token_ids, forever=forever)
        if self.terminal is not None:
            self.terminal = None
            await real(self, *events, token_ids=token_ids, forever=forever)

    def admit(self: GenerationEntries, entries: Sequence[LogEntry]) -> None:
        self.accepted_seq = entries[-1].seq

    return _patched((LogWriter, "append", append), (GenerationEntries, "admit", admit))


def _checkpoint_ahead_of_the_log() -> AbstractContextManager[object]:
    """The writer counts as shown what it is about to write."""

    async def append(self: LogWriter, *events: Any, token_ids: tuple[int, ...] = (), forever: bool = False) -> None:
        if not self.opened:
            await self.open(forever=forever)
        if self.terminal is not None:
            return
        last = len(events) - 1
        entries = [LogEntry(self._epoch, self.seq + 1 + at, event, token_ids if at == last else ()) for at, event in enumerate(events)]
        for entry in entries:
            self._show(entry)
        await asyncio.sleep(0.02)
        await turn_module.persist(lambda: self._append(entries), what="log_append", forever=forever)

    return _patched((LogWriter, "append", append))


def _resume_off_by_one() -> AbstractContextManager[object]:
    """The engine is told all tokens but the last."""
    real = turn_prompt.turn_request

    def request(tokenizer: Any, generation: Any, branch: Any, shown: Any, limits: Any) -> Any:
        return real(tokenizer, generation, branch, replace(shown, own_ids=shown.own_ids[:-1]), limits)

    return _patched((turn_prompt, "turn_request", request))


def _cancel_lost_before_the_stream() -> AbstractContextManager[object]:
    """A stop that comes between claim and stream is forgotten when the stream begins."""
    real = Turn._answer

    async def answer(self: Turn) -> Any:
        self._control.cancelled.clear()
        return await real(self)

    async def tell(self: Turn) -> Any:
        state = await self._writer.open()
        if state.terminal is not None:
            return turn_module.recorded(state.terminal, text=state.text)
        await self._introduce(state)
        self._own_ids = state.token_ids
        return await self._answer()

    async def heartbeat(self: MemoryGenerations, generation_id: Any, epoch: int, *, lease_until: Any) -> bool:
        self._state.generations[generation_id] = replace(self._held(generation_id, epoch), lease_until=lease_until)
        return False

    return _patched((Turn, "_answer", answer), (Turn, "_tell", tell), (MemoryGenerations, "heartbeat", heartbeat))


def _usage_record_twice() -> AbstractContextManager[object]:
    """The usage record is written beside the transaction, so that a repeated finalise writes it again."""
    real = MemoryGenerations.finalise

    async def finalise(self: MemoryGenerations, finished: Any) -> None:
        state = self._state
        row = state.generations[finished.generation_id]
        if row.status.terminal:
            state.outbox.append(OutboxRow(row.tenant_id, "usage", row.id, finished.outbox_payload, finished.now))
        await real(self, finished)

    return _patched((MemoryGenerations, "finalise", finalise))


def _stale_reader_cursor() -> AbstractContextManager[object]:
    """A snapshot is sent, but the reader's place stays where it was."""
    real = EventStream._snapshot

    async def snapshot(self: EventStream) -> Any:
        place = self.cursor
        progress = await real(self)
        if progress is Progress.MOVED:
            self.cursor = place
        return progress

    return _patched((EventStream, "_snapshot", snapshot))


def _journal_shows_before_it_writes() -> AbstractContextManager[object]:
    """Readers see entries that a killed server has not on its disk yet."""
    real = JournalLog._enqueue

    def enqueue(self: JournalLog, generation_id: Any, record: Any, publish: Any) -> Any:
        publish()
        return real(self, generation_id, record, lambda: None)

    async def append(self: Any, data: Any) -> Any:
        await asyncio.sleep(0.05)
        return await persist(self, data)

    persist = JournalLog._persist
    return _patched((JournalLog, "_enqueue", enqueue), (JournalLog, "_persist", append))


def _torn_record_is_kept() -> AbstractContextManager[object]:
    """What a killed process wrote in part stays in the segment, and later records are appended behind it."""
    from tests.faults.machinery import MemorySegments

    def write(self: MemorySegments, data: bytes) -> int:
        number = max(self._world.disk, default=1)
        self._world.disk.setdefault(number, bytearray()).extend(data)
        return number

    return _patched((MemorySegments, "cut", lambda self, number, size: None), (MemorySegments, "write", write))


def _stop_takes_back_what_is_read() -> AbstractContextManager[object]:
    """A stop keeps what its caller has seen, whatever others were shown."""

    @contextmanager
    def cutting(self: Readership) -> Iterator[int]:
        yield 0

    return _patched((Readership, "cutting", cutting))


_INHERITED = object()


def _set(where: Any, name: str, value: object) -> None:
    if value is _INHERITED:
        delattr(where, name)
    else:
        setattr(where, name, value)


@contextmanager
def _patched(*patches: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for where, name, bug in patches:
            stack.callback(_set, where, name, vars(where).get(name, _INHERITED))
            setattr(where, name, bug)
        yield


BUGS: dict[str, Plant] = {
    "no epoch check": _no_epoch_check,
    "snapshot without its cursor": _snapshot_without_cursor,
    "done before finalise": _done_before_finalise,
    "sweeper without compare-and-set": _sweeper_without_compare_and_set,
    "lost wake-up": _lost_wake_up,
    "coalescer drops ids": _coalescer_drops_ids,
    "terminal written twice": _terminal_written_twice,
    "checkpoint ahead of the log": _checkpoint_ahead_of_the_log,
    "resume off by one": _resume_off_by_one,
    "cancel lost between claim and stream": _cancel_lost_before_the_stream,
    "usage record twice": _usage_record_twice,
    "stale reader cursor": _stale_reader_cursor,
    "journal shows before it writes": _journal_shows_before_it_writes,
    "torn record is kept": _torn_record_is_kept,
    "stop takes back what is read": _stop_takes_back_what_is_read,
}
