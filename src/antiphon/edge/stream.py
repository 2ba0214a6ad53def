"""The event stream of one generation to one client, as a plain ASGI handler.

A connection only reads: it never decides what a generation does. Nothing of the store or the log is held while bytes are
being written to a client.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from starlette.types import Receive, Scope, Send

from antiphon.core.errors import Deleted, NotFound
from antiphon.core.events import Cursor, Done, Failed, LogEntry, Reconnect, Snapshot, parse_cursor
from antiphon.core.generation import Generation, GenerationStatus
from antiphon.core.ids import GenerationId
from antiphon.core.telemetry import STREAMS_OPEN
from antiphon.edge import sse
from antiphon.edge.connection import ClientGone, Connection, HeaderList
from antiphon.edge.problems import failed_event
from antiphon.edge.services import EdgeServices
from antiphon.edge.standing import Standing, Standings
from antiphon.edge.tail import Reader, Tail, Tails
from antiphon.edge.wheel import Wheel
from antiphon.orchestrator.live import LiveState
from antiphon.stores.conversations.base import Owner

_MISSING_CHECK_SECONDS = 1.0
_RECONNECT_AFTER_MS = 500
_RECONNECT_SPREAD_MS = 1500
_TURNS_PER_PING = 4


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who reads which generation, from where (``None``: from the start), and the credentials that must go on to hold."""

    owner: Owner
    generation_id: GenerationId
    cursor: str | None
    credentials: HeaderList


class Streams:
    """Opens event streams, counts them, and tells them all to reconnect when the server drains."""

    def __init__(self, services: EdgeServices, check: Callable[[HeaderList], Awaitable[object]]) -> None:
        self.services = services
        self.tails = Tails(services.log, services.runner.reading)
        self.standings = Standings(check)
        self.ping_after_s = services.timing.ping_seconds * (1 - 1 / _TURNS_PER_PING)
        self.wheel = Wheel(services.timing.ping_seconds / _TURNS_PER_PING)
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

    def opened(self) -> int:
        """Count one more open stream; returns its number since the start."""
        self._open += 1
        self._opened += 1
        self.services.telemetry.gauge(STREAMS_OPEN, self._open)
        return self._opened

    def closed(self) -> None:
        """Count one less."""
        self._open -= 1
        self.services.telemetry.gauge(STREAMS_OPEN, self._open)


class _Progress(Enum):
    MOVED = "moved"
    IDLE = "idle"
    ENDED = "ended"


class EventStream(Reader):
    """Answers one request with one generation's events: what is due goes out, otherwise sleep until woken or a ping is due.

    There may be ten thousand of them, nearly all asleep: one task each, no timer, few objects.
    """

    __slots__ = (
        "_came_late",
        "_caught_up",
        "_connection",
        "_headers",
        "_missing_at",
        "_noticed",
        "_number",
        "_ping_due",
        "_placed",
        "_services",
        "_shown",
        "_standing",
        "_streams",
        "_tail",
        "_titled",
        "_viewer",
        "_written_at",
    )
    _connection: Connection
    _standing: Standing
    _tail: Tail

    def __init__(self, streams: Streams, viewer: Viewer, headers: HeaderList) -> None:
        super().__init__()
        self._streams = streams
        self._services = streams.services
        self._viewer = viewer
        self._headers = headers
        self._number = 0
        self._placed = False
        self._came_late = streams.services.state.draining
        self._caught_up = False
        self._ping_due = False
        self._shown: LiveState | None = None
        self._titled: LiveState | None = None
        self._noticed: LiveState | None = None
        self._written_at = 0.0
        self._missing_at = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams, viewer = self._streams, self._viewer
        connection = self._connection = Connection(scope, receive, send, on_gone=self.wake)
        self._number = streams.opened()
        self._tail = streams.tails.attach(viewer.generation_id, self)
        self._standing = streams.standings.join(viewer.credentials, self)
        place = streams.wheel.add(self)
        try:
            connection.open()
            await connection.start(200, (*sse.HEADERS, *self._headers))
            await self._write(sse.RETRY)
            await self._run()
            await connection.finish()
        except ClientGone:
            pass
        finally:
            connection.close()
            streams.wheel.remove(self, place)
            streams.standings.leave(self._standing, self)
            streams.tails.detach(self._tail, self)
            streams.closed()

    def tick(self) -> None:
        """What the clock asks for: a ping, or to give up a client that takes nothing."""
        self._connection.check()
        if self._services.clock.monotonic() - self._written_at >= self._streams.ping_after_s:
            self._ping_due = True
            self.wake()

    async def _run(self) -> None:
        """Write until the terminal event, the client's leaving, a revoked credential, or drain."""
        while not self._connection.gone and not self._standing.revoked:
            if self._must_go():
                spread = self._number * 97 % _RECONNECT_SPREAD_MS
                await self._write(sse.encode_live(Reconnect(_RECONNECT_AFTER_MS + spread)))
                return
            await self._tell_news()
            progress = await self._step()
            if progress is _Progress.ENDED:
                return
            if progress is _Progress.IDLE:
                if self._ping_due:
                    await self._write(sse.PING)
                await self.wait()

    async def _tell_news(self) -> None:
        """What is not in the log, each once: who answers instead, where it stands until there is text, how the conversation is called."""
        tail = self._tail
        if tail.started and tail.notice is not None and tail.notice is not self._noticed:
            self._noticed = tail.notice
            await self._write(sse.encode_live(tail.notice.event))
        if tail.started and tail.status is not self._shown:
            self._shown = tail.status
            if tail.status is not None:
                await self._write(sse.encode_live(tail.status.event))
        if tail.title is not None and tail.title is not self._titled:
            self._titled = tail.title
            await self._write(sse.encode_live(tail.title.event))

    def _must_go(self) -> bool:
        state = self._services.state
        return state.leaving or (state.draining and not self._came_late) or self._tail.failed

    async def _step(self) -> _Progress:
        if not self._tail.started:
            return await self._await_log()
        if not self._placed:
            self._placed = True
            if not await self._place():
                return await self._snapshot()
        frames = self._tail.after(self.cursor)
        if frames is None:
            return await self._snapshot() if self._caught_up else await self._catch_up()
        if frames.data:
            self._caught_up = True
            self.cursor = frames.seq
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
            self.cursor = cursor.seq
        return known

    async def _catch_up(self) -> _Progress:
        """Replay one page from the log itself, for a cursor older than the ring."""
        page = await self._services.log.read(self._viewer.generation_id, self.cursor)
        if page is None:
            return await self._from_store()
        if not page.entries:
            return _Progress.IDLE
        last = page.entries[-1]
        assert last.seq > self.cursor, "a log only grows"
        self.cursor = last.seq
        await self._write(b"".join(sse.encode_entry(entry) for entry in page.entries))
        return _Progress.ENDED if last.terminal else _Progress.MOVED

    async def _snapshot(self) -> _Progress:
        """Everything so far as one event, in place of what cannot or need not be replayed."""
        state = await self._services.log.state(self._viewer.generation_id)
        if state is None:
            return await self._from_store()
        self.cursor = state.seq
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

    async def _write(self, data: bytes) -> None:
        await self._connection.write(data)
        self._ping_due = False
        self._written_at = self._services.clock.monotonic()


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
