"""The event stream of one generation to one client, as a plain ASGI handler.

A connection only reads: it never decides what a generation does. Nothing of the store or the log is held while bytes are
being written to a client.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

import structlog
from starlette.types import Receive, Scope, Send

from antiphon.core.errors import AntiphonError, Deleted, NotFound
from antiphon.core.events import Cursor, Done, Failed, LogEntry, Reconnect, Snapshot, parse_cursor
from antiphon.core.generation import Generation, GenerationStatus
from antiphon.core.ids import GenerationId
from antiphon.core.telemetry import STREAMS_OPEN
from antiphon.edge import sse
from antiphon.edge.connection import ClientGone, Connection, HeaderList
from antiphon.edge.problems import failed_event
from antiphon.edge.services import EdgeServices
from antiphon.edge.tail import Reader, Tail, Tails
from antiphon.orchestrator.live import LiveState
from antiphon.stores.conversations.base import Owner

RECHECK_SECONDS = 4.0
_MISSING_CHECK_SECONDS = 1.0
_RECONNECT_AFTER_MS = 500
_RECONNECT_SPREAD_MS = 1500

_log = structlog.get_logger(__name__)

StillAllowed = Callable[[], Awaitable[None]]
"""Raises when the caller's key or session has been revoked meanwhile."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who reads which generation, from where (``None``: from the start), and how to see that they still may."""

    owner: Owner
    generation_id: GenerationId
    cursor: str | None
    still_allowed: StillAllowed


class Streams:
    """Opens event streams, counts them, and tells them all to reconnect when the server drains."""

    def __init__(self, services: EdgeServices) -> None:
        self.services = services
        self.tails = Tails(services.log)
        self._open = 0
        self._opened = 0
        services.state.on_drain(self.tails.wake_all)

    async def already_finished(self, viewer: Viewer) -> bool:
        """Whether the viewer has the terminal event already, so that there is nothing to stream (204)."""
        cursor = parse_cursor(viewer.cursor) if viewer.cursor is not None else None
        if cursor is None:
            return False
        state = await self.services.log.state(viewer.generation_id)
        return state is not None and state.terminal is not None and _stands_at(cursor, state.terminal)

    def stream(self, viewer: Viewer, headers: HeaderList = ()) -> EventStream:
        """An ASGI application that answers with the stream; ``headers`` are added to the format's own."""
        return EventStream(self, viewer, headers)

    @contextmanager
    def counted(self) -> Iterator[int]:
        """Count one open stream; yields its number since the start."""
        self._open += 1
        self._opened += 1
        self.services.telemetry.gauge(STREAMS_OPEN, self._open)
        try:
            yield self._opened
        finally:
            self._open -= 1
            self.services.telemetry.gauge(STREAMS_OPEN, self._open)


class EventStream:
    """Answers one request with one generation's events."""

    def __init__(self, streams: Streams, viewer: Viewer, headers: HeaderList) -> None:
        self._streams = streams
        self._viewer = viewer
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        reader = Reader()
        services = self._streams.services
        period = min(services.timing.ping_seconds, RECHECK_SECONDS)
        connection = Connection(receive, send, on_gone=reader.wake, on_tick=reader.tick, tick_seconds=period)
        generation_id = self._viewer.generation_id
        with suppress(ClientGone), self._streams.counted() as number:
            async with (
                connection.watching(),
                services.runner.reading(generation_id) as states,
                self._streams.tails.attach(generation_id, reader) as tail,
            ):
                await connection.start(200, (*sse.HEADERS, *self._headers))
                await connection.write(sse.RETRY)
                reading = _Reading(services, self._viewer, reader, tail, connection)
                async with reading.following(states):
                    await reading.run(number)
            await connection.finish()


class _Progress(Enum):
    MOVED = "moved"
    IDLE = "idle"
    ENDED = "ended"


class _Reading:
    """The reader loop: what is due goes out, otherwise sleep until woken or a ping is due."""

    def __init__(self, services: EdgeServices, viewer: Viewer, reader: Reader, tail: Tail, connection: Connection) -> None:
        self._services = services
        self._viewer = viewer
        self._reader = reader
        self._tail = tail
        self._connection = connection
        self._placed = False
        self._caught_up = False
        self._status: LiveState | None = None
        now = services.clock.monotonic()
        self._written_at = now
        self._allowed_at = now
        self._missing_at = -math.inf

    @asynccontextmanager
    async def following(self, states: AsyncIterator[LiveState]) -> AsyncIterator[None]:
        """Keep the newest queue or prefill state at hand while the context is open."""
        follower = asyncio.create_task(self._follow(states), name="live-follower")
        try:
            yield
        finally:
            follower.cancel()

    async def run(self, number: int) -> None:
        """Write until the terminal event, the client's leaving, a revoked credential, or drain."""
        while not self._connection.gone:
            if self._services.state.draining or self._tail.failed:
                spread = number * 97 % _RECONNECT_SPREAD_MS
                await self._write(sse.encode_live(Reconnect(_RECONNECT_AFTER_MS + spread)))
                return
            status, self._status = self._status, None
            if status is not None and not self._caught_up:
                await self._write(sse.encode_live(status.event))
            progress = await self._step()
            if progress is _Progress.ENDED:
                return
            if progress is _Progress.IDLE:
                await self._reader.wait()
                if self._reader.ticked and not await self._tick():
                    return

    async def _step(self) -> _Progress:
        if not self._tail.started:
            return await self._await_log()
        if not self._placed:
            self._placed = True
            if not await self._place():
                return await self._snapshot()
        frames = self._tail.after(self._reader.cursor)
        if frames is None:
            return await self._snapshot() if self._caught_up else await self._catch_up()
        if frames.data:
            self._caught_up = True
            self._reader.cursor = frames.seq
            await self._write(frames.data)
            return _Progress.ENDED if frames.terminal else _Progress.IDLE
        if frames.terminal:
            return _Progress.ENDED
        return await self._from_store() if self._tail.gone else _Progress.IDLE

    async def _place(self) -> bool:
        """Set the cursor to where the reader says it stands; false when the log knows no such place."""
        if self._viewer.cursor is None:
            return True
        cursor = parse_cursor(self._viewer.cursor)
        if cursor is None:
            return False
        if cursor.seq == 0:
            return True
        page = await self._services.log.read(self._viewer.generation_id, cursor.seq - 1, limit=1)
        if page is None or not page.entries:
            return False
        entry = page.entries[0]
        # A folded log has one snapshot in place of older entries, so the next entry may lie beyond the cursor.
        known = entry.seq > cursor.seq or _stands_at(cursor, entry)
        if known:
            self._reader.cursor = cursor.seq
        return known

    async def _catch_up(self) -> _Progress:
        """Replay one page from the log itself, for a cursor older than the ring."""
        page = await self._services.log.read(self._viewer.generation_id, self._reader.cursor)
        if page is None:
            return await self._from_store()
        if not page.entries:
            return _Progress.IDLE
        last = page.entries[-1]
        self._reader.cursor = last.seq
        await self._write(b"".join(sse.encode_entry(entry) for entry in page.entries))
        return _Progress.ENDED if last.terminal else _Progress.MOVED

    async def _snapshot(self) -> _Progress:
        """Everything so far as one event, in place of what cannot or need not be replayed."""
        state = await self._services.log.state(self._viewer.generation_id)
        if state is None:
            return await self._from_store()
        self._reader.cursor = state.seq
        if state.terminal is None:
            await self._write(sse.encode_logged(Snapshot(state.text), f"{state.epoch}-{state.seq}"))
            return _Progress.MOVED
        shown = sse.encode_logged(Snapshot(state.text), f"{state.epoch}-{state.terminal.seq - 1}")
        await self._write(shown + sse.encode_entry(state.terminal))
        return _Progress.ENDED

    async def _await_log(self) -> _Progress:
        """No log yet: the generation waits to be claimed, or ended so long ago that its log has expired."""
        now = self._services.clock.monotonic()
        if self._tail.missing and now - self._missing_at >= _MISSING_CHECK_SECONDS:
            self._missing_at = now
            generation = await self._generation()
            if generation is None or generation.status.terminal:
                return await self._from_store()
        return _Progress.IDLE

    async def _from_store(self) -> _Progress:
        """The end as the store has it, when the log is gone. These events have no id: there is no place in a log to name."""
        generation = await self._generation()
        if generation is None:
            await self._write(sse.encode_logged(failed_event(Deleted("This conversation was deleted.")), None))
            return _Progress.ENDED
        if not generation.status.terminal:
            await self._write(sse.encode_live(Reconnect(_RECONNECT_AFTER_MS)))
            return _Progress.ENDED
        message = await self._services.conversations.message(self._viewer.owner, generation.message_id)
        shown = sse.encode_logged(Snapshot(message.content), None)
        await self._write(shown + sse.encode_logged(end_of(generation), None))
        return _Progress.ENDED

    async def _generation(self) -> Generation | None:
        try:
            return await self._services.generations.get(self._viewer.owner, self._viewer.generation_id)
        except NotFound:
            return None

    async def _tick(self) -> bool:
        """What the clock asks for: a ping, a look at the credentials. False when they hold no more."""
        self._reader.ticked = False
        now = self._services.clock.monotonic()
        if now - self._allowed_at >= RECHECK_SECONDS:
            self._allowed_at = now
            if not await self._still_allowed():
                return False
        if now - self._written_at >= self._services.timing.ping_seconds * 0.95:
            await self._write(sse.PING)
        return True

    async def _still_allowed(self) -> bool:
        try:
            await self._viewer.still_allowed()
        except AntiphonError as error:
            _log.info("stream_closed", generation_id=self._viewer.generation_id, code=error.code)
            return False
        return True

    async def _write(self, data: bytes) -> None:
        await self._connection.write(data)
        self._written_at = self._services.clock.monotonic()

    async def _follow(self, states: AsyncIterator[LiveState]) -> None:
        async for state in states:
            self._status = state
            self._reader.wake()


def end_of(generation: Generation) -> Done | Failed:
    """The terminal event of a finished generation, rebuilt from its row."""
    if generation.status in {GenerationStatus.FAILED, GenerationStatus.INTERRUPTED}:
        error = generation.error
        if error is None:
            return Failed(code=generation.status.value, message="The answer could not be finished.", retryable=True)
        return Failed(code=error.code, message=error.message, retryable=error.retryable)
    usage = generation.usage
    return Done(
        finish_reason=generation.finish_reason or "stop",
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        queued_ms=usage.queued_ms,
        ttft_ms=generation.ttft_ms,
        duration_ms=generation.duration_ms or 0,
        cost=None if usage.cost is None else str(usage.cost),
        model=generation.model,
        requested_model=generation.requested_model,
    )


def _stands_at(cursor: Cursor, entry: LogEntry) -> bool:
    return cursor.seq == entry.seq and cursor.epoch in {None, entry.epoch}
