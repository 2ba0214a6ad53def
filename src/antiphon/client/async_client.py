"""The same client for an event loop. It needs aiohttp, which the server brings along."""

from __future__ import annotations

import asyncio
import http.client
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from antiphon.client import calls
from antiphon.client.calls import CURRENT_LEAF, Call, CurrentLeaf
from antiphon.client.client import SILENCE_S
from antiphon.client.cursor import AnswerCursor, Opening, Place
from antiphon.client.errors import ApiError, ConnectionLost, ProtocolError
from antiphon.client.shapes import (
    Conversation,
    ConversationPage,
    Done,
    Event,
    Failed,
    Generation,
    Me,
    Meta,
    Model,
    Path,
    PoolState,
    Reconnect,
    read_event,
)
from antiphon.client.sse import SseParser
from antiphon.client.transport import Address, api_error, decode

Shape = TypeVar("Shape")


class AsyncTransport:
    """Requests to one server with one key, over connections that are kept."""

    def __init__(self, url: str, key: str, *, timeout_s: float) -> None:
        """Raises ``ClientError`` for a URL that is not http or https."""
        self._base = Address.of(url).base
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=timeout_s)
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout, connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def exchange(
        self, method: str, path: str, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """The answer, read as far as its headers. Raises ``ApiError`` for a status of 400 and above, ``ConnectionLost``."""
        try:
            async with self._session.request(method, self._base + path, json=body, headers=headers) as answer:
                if answer.status >= 400:
                    raise api_error(answer.status, answer.reason or "", await answer.read())
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(f"{self._base}: {str(error) or type(error).__name__}") from error

    async def call(self, call: Call[Shape]) -> Shape:
        """The JSON answer in the call's shape; also raises ``ProtocolError``."""
        async with self.exchange(call.method, call.path, call.body) as answer:
            content = await answer.read()
        return decode(call, content)


class AsyncAnswer:
    """As ``Answer``, with ``async for``."""

    def __init__(
        self,
        transport: AsyncTransport,
        opening: Opening,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._transport = transport
        self._sleep = sleep
        self._cursor = AnswerCursor(opening, random)

    @property
    def text(self) -> str:
        return self._cursor.text

    @property
    def generation_id(self) -> str:
        """Empty before the first event."""
        return self._cursor.generation_id

    @property
    def meta(self) -> Meta | None:
        return self._cursor.meta

    @property
    def end(self) -> Done | Failed | None:
        return self._cursor.end

    async def __aiter__(self) -> AsyncGenerator[Event]:
        """Raises ``ApiError``, ``ConnectionLost``, ``ProtocolError``."""
        while self._cursor.end is None:
            try:
                async for event in self._connected():
                    yield event
                lost = ConnectionLost("the server closed the stream")
            except ConnectionLost as error:
                lost = error
            except ApiError as error:
                lost = self._cursor.refused(error)
            if self._cursor.end is None:
                await self._sleep(self._cursor.wait_s(lost))

    async def cancel(self) -> Generation:
        """Stop the answer where this reader stands; the text up to here is kept. Raises as iterating does."""
        if not self.generation_id:
            raise ConnectionLost("the answer has not begun")
        return await self._transport.call(calls.cancel(self.generation_id, self._cursor.last_id))

    async def _connected(self) -> AsyncGenerator[Event]:
        """Events of one connection; ends with it."""
        cursor, asking = self._cursor, self._cursor.asking()
        parser = SseParser(last_id=cursor.last_id)
        async with self._transport.exchange(asking.method, asking.path, asking.body, asking.headers) as response:
            if response.status == http.client.NO_CONTENT:
                raise ProtocolError("the stream ended without done or error")
            async for piece in response.content.iter_any():
                for received in parser.push(piece):
                    event = read_event(received.kind, received.data)
                    if isinstance(event, Reconnect):
                        cursor.come_back_after(event.after_ms / 1000)
                        return
                    place = Place.KNOWN if event is None else cursor.take(event, received)
                    if place is Place.GAP:
                        cursor.gap()
                        return
                    if event is not None and place is Place.NEXT:
                        yield event
                    if cursor.end is not None:
                        return


class AsyncClient:
    """One server, one key; ``async with`` it, inside one event loop. Calls raise as ``Client``'s."""

    def __init__(self, url: str, key: str, *, timeout_s: float = SILENCE_S) -> None:
        self._transport = AsyncTransport(url, key, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._transport.close()

    async def me(self) -> Me:
        return await self._transport.call(calls.me())

    async def pools(self) -> tuple[PoolState, ...]:
        """Every pool's line and replicas; the key needs the scope admin."""
        return await self._transport.call(calls.pools())

    async def models(self) -> tuple[Model, ...]:
        return (await self._transport.call(calls.models())).data

    async def new_conversation(self, *, title: str | None = None, model: str | None = None) -> Conversation:
        return await self._transport.call(calls.new_conversation(title, model))

    async def conversations(self, *, limit: int = 30, after: str | None = None) -> ConversationPage:
        """As ``Client.conversations``."""
        return await self._transport.call(calls.conversations(limit, after))

    async def path(self, conversation_id: str, *, leaf: str | None = None, limit: int = 100) -> Path:
        """As ``Client.path``."""
        return await self._transport.call(calls.path(conversation_id, leaf, limit))

    def send(
        self,
        conversation_id: str,
        content: str | None,
        *,
        parent: str | CurrentLeaf | None = CURRENT_LEAF,
        model: str | None = None,
        max_tokens: int | None = None,
    ) -> AsyncAnswer:
        """As ``Client.send``."""
        opening = calls.send(conversation_id, calls.Message(content, parent, model, max_tokens), secrets.token_hex(16))
        return AsyncAnswer(self._transport, opening)

    async def generation(self, generation_id: str) -> Generation:
        return await self._transport.call(calls.generation(generation_id))
