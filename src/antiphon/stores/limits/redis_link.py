"""One connection to Redis that many callers share: what they ask within one turn of the event loop is one write.

A client with a pool waits for a connection, a write and a read for each call; here a call costs its words, a future, and its share of
the write. Answers come in the order of the questions (RESP 2), read by hiredis.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote, urlsplit

import hiredis

Word = str | int | bytes

_packed = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)

TIMEOUT_S = 1.0
_MOST_WAITING = 8192


class RedisRefusal(Exception):
    """Redis answered with an error; the text begins with its code."""


class RedisLost(Exception):
    """Redis cannot be reached, or has not answered in time. Whether it did what was asked nobody knows."""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis is, and as whom to greet it."""

    host: str
    port: int
    database: int
    username: str | None
    password: str | None = field(repr=False)
    secure: bool

    @staticmethod
    def parse(url: str) -> RedisAddress:
        """``redis[s]://[user:password@]host[:port][/db]``."""
        parts = urlsplit(url)
        return RedisAddress(
            host=parts.hostname or "localhost",
            port=parts.port or 6379,
            database=int(parts.path.strip("/") or 0),
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            secure=parts.scheme == "rediss",
        )


class RedisLink:
    """Connects at the first call, and again after a loss. Of one event loop."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._wire: _Wire | None = None
        self._opening: asyncio.Task[_Wire] | None = None
        self._closed = False

    async def call(self, *words: Word) -> object:
        """What Redis answers. Asked a second time where the connection was lost, so for what may be done twice.

        Waits a second for each try at most. Raises ``RedisLost``, ``RedisRefusal``.
        """
        packed = _packed(words)
        try:
            answer = await (self._open_wire() or await self._open()).ask(packed)
        except RedisLost:
            answer = await (self._open_wire() or await self._open()).ask(packed)
        if isinstance(answer, hiredis.ReplyError):
            raise RedisRefusal(str(answer))
        return answer

    async def close(self) -> None:
        """Who still waits for an answer gets ``RedisLost``, and so does who asks from now on."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._wire is not None:
            self._wire.abort()

    def _open_wire(self) -> _Wire | None:
        wire = self._wire
        return None if wire is None or wire.lost else wire

    async def _open(self) -> _Wire:
        """One connection for all who come meanwhile; who is cancelled leaves the others waiting for it."""
        if self._closed:
            raise RedisLost("closed")
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._connect(), name="redis link")
            self._opening.add_done_callback(_heed)
        try:
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            if self._opening.cancelled():
                raise RedisLost("closed") from None
            raise

    async def _connect(self) -> _Wire:
        address, loop = self._address, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                secure = await asyncio.to_thread(ssl.create_default_context) if address.secure else None
                _, wire = await loop.create_connection(lambda: _Wire(loop), address.host, address.port, ssl=secure)
                if address.password is not None:
                    await _greet(wire, "AUTH", *([address.username] if address.username else []), address.password)
                if address.database:
                    await _greet(wire, "SELECT", address.database)
        except (OSError, TimeoutError) as error:
            raise RedisLost(f"{type(error).__name__}: {error}") from error
        self._wire = wire
        return wire


async def _greet(wire: _Wire, *words: Word) -> None:
    answer = await wire.ask(_packed(words))
    if isinstance(answer, hiredis.ReplyError):
        wire.abort()
        raise RedisLost(str(answer))


def _heed(opening: asyncio.Task[_Wire]) -> None:
    """Its error is told to who waits; that nobody does is none."""
    if not opening.cancelled():
        opening.exception()


class _Wire(asyncio.Protocol):
    """One connection's life."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lost = False
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[asyncio.Future[object], float]] = deque()
        self._unsent: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None

    def ask(self, packed: bytes) -> asyncio.Future[object]:
        """The answer, an error of Redis's among them. Raises ``RedisLost`` where too many wait already."""
        if self.lost or len(self._waiting) >= _MOST_WAITING:
            raise RedisLost("the connection is closed" if self.lost else f"{_MOST_WAITING} calls wait already")
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        answer: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append((answer, self._loop.time() + TIMEOUT_S))
        if self._watch is None:
            self._watch = self._loop.call_later(TIMEOUT_S, self._look)
        return answer

    def abort(self) -> None:
        """No more; who waits learns it."""
        if self._transport is not None:
            self._transport.abort()
        self._end("closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                asked, _ = self._waiting.popleft()
                if not asked.done():
                    asked.set_result(answer)
        except (hiredis.ProtocolError, IndexError):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"{type(exc).__name__}: {exc}" if exc else "Redis closed the connection")

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and not self.lost:
            self._transport.write(b"".join(unsent))

    def _look(self) -> None:
        """The oldest question decides: what it waits for in vain, those behind it do too."""
        self._watch = None
        if not self._waiting:
            return
        _, due = self._waiting[0]
        if due <= self._loop.time():
            self.abort()
        else:
            self._watch = self._loop.call_at(due, self._look)

    def _end(self, why: str) -> None:
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._waiting:
            asked, _ = self._waiting.popleft()
            if not asked.done():
                asked.set_exception(RedisLost(why))
