"""What one reader has not taken yet. Bounded without waiting: events that belong together are merged."""

from __future__ import annotations

import asyncio
from collections import deque

from antiphon.core.errors import GenerationFailed
from antiphon.core.events import Queued
from antiphon.engines.base import EngineEvent, Prefilling, Tokens


class Mailbox:
    """One writer, one reader, one event loop.

    A slow reader finds at most one place in the queue, one prefill progress, one run of tokens and the end.
    """

    __slots__ = ("_events", "_failure", "_reader")

    def __init__(self) -> None:
        self._events: deque[EngineEvent | Queued] = deque()
        self._failure: GenerationFailed | None = None
        self._reader: asyncio.Future[None] | None = None
        """Done when there is something for the reader who waits."""

    def put(self, event: EngineEvent | Queued) -> None:
        """Add an event, or merge it into the last one."""
        if self._events:
            last = self._events[-1]
            if isinstance(event, Tokens) and isinstance(last, Tokens):
                self._events.pop()
                event = Tokens(last.token_ids + event.token_ids, last.text + event.text)
            elif type(event) is type(last) and isinstance(event, Queued | Prefilling):
                self._events.pop()
        self._events.append(event)
        self._wake()

    def fail(self, failure: GenerationFailed) -> None:
        """End the events with ``failure``; what is here already is still delivered first."""
        self._failure = failure
        self._wake()

    def take(self) -> EngineEvent | Queued | None:
        """The next event if there is one. Raises what ``fail`` was given, once everything before it was taken."""
        if self._events:
            return self._events.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    async def get(self) -> EngineEvent | Queued:
        """The next event. Raises what ``fail`` was given, once everything before it was taken."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._events.popleft()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
