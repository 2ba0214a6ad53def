"""One client's connection, for handlers that write more than one answer's worth: bounded waits and a client that may leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, cast

from starlette.types import Message, Receive, Scope, Send

SEND_SECONDS = 20.0
LINE = "antiphon.line"
"""Where our server puts the request's ``Line`` into the scope; other servers have none."""

_CHECKS_PER_SEND = 4

HeaderList = tuple[tuple[bytes, bytes], ...]


class ClientGone(Exception):
    """The client has left, or has taken nothing for ``SEND_SECONDS``; there is nobody to tell."""


class Line(Protocol):
    """What our server knows of the connection under a request."""

    def watch(self, tell: Callable[[], None] | None) -> bool:
        """Call ``tell`` once when the connection is lost (``None``: no more); false when it is lost already.

        Until then what the client sends is held back, so the request must have been read.
        """
        ...

    def write(self, data: bytes) -> bool:
        """Send a piece, not empty, of the answer under way: an ASGI message for each token costs as much as the token does else.

        False, with nothing sent, where it must be a message: the client takes none, has left, or the answer is not in chunks.
        """
        ...


class Connection:
    """``gone`` turns true when the client leaves, and then ``on_gone`` is called once.

    After a disconnect the server swallows whatever is sent. Our own server tells of it through the request's ``Line``, so that
    a connection needs one task alone; on another one a second task waits for ``receive``.
    """

    __slots__ = ("_headers", "_line", "_on_gone", "_receive", "_send", "_sender", "_sending_since", "_stuck", "_watcher", "gone")

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, on_gone: Callable[[], None]) -> None:
        self.gone = False
        self._line = cast("Line | None", scope.get(LINE))
        self._headers = None if self._line is None else cast("list[tuple[bytes, bytes]]", scope["headers"])
        self._receive = receive
        self._send = send
        self._on_gone = on_gone
        self._sender: asyncio.Task[object] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._sending_since: float | None = None
        self._stuck = False

    def open(self) -> None:
        """Watch the client from now on; to be called by the task that sends, after the request was read: its headers go."""
        self._sender = asyncio.current_task()
        headers, self._headers = self._headers, None
        if headers is not None:
            # Under a stream that lasts for hours a browser's headers would be a fifth of what it weighs.
            headers.clear()
        if self._line is None:
            self._watcher = asyncio.create_task(self._watch(), name="client-watcher")
        elif not self._line.watch(self._lost):
            self._lost()

    def close(self) -> None:
        """Watch no more."""
        if self._line is not None:
            self._line.watch(None)
        if self._watcher is not None:
            self._watcher.cancel()

    def check(self) -> None:
        """Give up a client that has taken nothing for ``SEND_SECONDS``: the sender's wait ends with ``ClientGone``."""
        if self._sending_since is None or self._stuck or self._sender is None:
            return
        if asyncio.get_running_loop().time() - self._sending_since >= SEND_SECONDS:
            self._stuck = self.gone = True
            self._sender.cancel()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Open while the context is, with a timer of its own that checks."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            nonlocal timer
            timer = loop.call_later(SEND_SECONDS / _CHECKS_PER_SEND, tick)
            self.check()

        timer = loop.call_later(SEND_SECONDS / _CHECKS_PER_SEND, tick)
        self.open()
        try:
            yield
        finally:
            timer.cancel()
            self.close()

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the status and headers. Raises ``ClientGone``, as all that send do."""
        await self._bounded({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._line is not None and data and not self.gone and self._line.write(data):
            return
        await self._bounded({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send ``data`` and end the answer."""
        await self._bounded({"type": "http.response.body", "body": data, "more_body": False})

    async def _bounded(self, message: Message) -> None:
        if self.gone:
            raise ClientGone
        self._sending_since = asyncio.get_running_loop().time()
        try:
            await self._send(message)
        except asyncio.CancelledError:
            if not self._stuck or self._sender is None or self._sender.uncancel():
                raise
            raise ClientGone from None
        finally:
            self._sending_since = None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._lost()

    def _lost(self) -> None:
        self.gone = True
        self._on_gone()
