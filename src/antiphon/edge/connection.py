"""One client's connection, for handlers that write more than one answer's worth: bounded waits and a client that may leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.types import Receive, Send

SEND_SECONDS = 20.0

HeaderList = tuple[tuple[bytes, bytes], ...]


class ClientGone(Exception):
    """The client has left, or has taken nothing for ``SEND_SECONDS``; there is nobody to tell."""


class Connection:
    """``gone`` turns true when the client leaves, and then ``on_gone`` is called once.

    After a disconnect the server swallows whatever is sent, so only ``receive`` can tell.
    """

    def __init__(self, receive: Receive, send: Send, on_gone: Callable[[], None]) -> None:
        self.gone = False
        self._receive = receive
        self._send = send
        self._on_gone = on_gone

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch for the client's leaving while the context is open. The request's body must have been read."""
        watcher = asyncio.create_task(self._watch(), name="client-watcher")
        try:
            yield
        finally:
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

    async def _bounded(self, message: dict[str, object]) -> None:
        if self.gone:
            raise ClientGone
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError as error:
            self.gone = True
            raise ClientGone from error

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._on_gone()
