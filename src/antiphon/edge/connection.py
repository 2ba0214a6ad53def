"""One client's connection, for handlers that write more than one answer's worth: bounded waits and a client that may leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.types import Message, Receive, Send

SEND_SECONDS = 20.0

HeaderList = tuple[tuple[bytes, bytes], ...]


class ClientGone(Exception):
    """The client has left, or has taken nothing for ``SEND_SECONDS``; there is nobody to tell."""


class Connection:
    """``gone`` turns true when the client leaves, and then ``on_gone`` is called once; ``on_tick`` every ``tick_seconds``.

    After a disconnect the server swallows whatever is sent, so only ``receive`` can tell. One timer per connection, none per
    send: a stuck send is found at a tick.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        on_gone: Callable[[], None],
        on_tick: Callable[[], None] | None = None,
        tick_seconds: float = SEND_SECONDS / 4,
    ) -> None:
        self.gone = False
        self._receive = receive
        self._send = send
        self._on_gone = on_gone
        self._on_tick = on_tick
        self._tick_seconds = tick_seconds
        self._sending_since: float | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the client while the context is open; to be entered by the task that sends, after the request's body was read.

        Raises ``ClientGone`` where a send is stuck.
        """
        loop = asyncio.get_running_loop()
        watcher = asyncio.create_task(self._watch(), name="client-watcher")
        deadline = asyncio.timeout(None)
        timer: asyncio.TimerHandle | None = None

        def tick() -> None:
            nonlocal timer
            timer = loop.call_later(self._tick_seconds, tick)
            if self._sending_since is not None and loop.time() - self._sending_since >= SEND_SECONDS:
                deadline.reschedule(loop.time())
            elif self._on_tick is not None:
                self._on_tick()

        timer = loop.call_later(self._tick_seconds, tick)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            self.gone = True
            raise ClientGone from error
        finally:
            timer.cancel()
            watcher.cancel()

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the status and headers."""
        await self._bounded({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, data: bytes) -> None:
        """Send ``data``; raises ``ClientGone``."""
        await self._bounded({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send ``data`` and end the answer."""
        await self._bounded({"type": "http.response.body", "body": data, "more_body": False})

    async def _bounded(self, message: Message) -> None:
        if self.gone:
            raise ClientGone
        self._sending_since = asyncio.get_running_loop().time()
        await self._send(message)
        self._sending_since = None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._on_gone()
