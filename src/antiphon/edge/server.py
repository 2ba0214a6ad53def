"""uvicorn behind a protocol of our own: bounded headers, deadlines for a request to arrive, no signals.

httptools alone accepts headers of any size and waits for them forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Protocol, cast

import msgspec
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn._types import ASGI3Application
from uvicorn.lifespan.off import LifespanOff
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from antiphon.edge.connection import LINE
from antiphon.edge.listener import BACKLOG

HEADER_BYTES = 32_768
HEADER_SECONDS = 10.0
BODY_SECONDS = 60.0
KEEP_ALIVE_SECONDS = 75
DRAIN_SECONDS = 3
LINGER_SECONDS = 5.0
_PARTING_POLL_S = 0.005
_IGNORED_BODY_BYTES = 16 << 20
_PIECE_BYTES = 8192


class ServedApp(Protocol):
    """What the server serves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def new_request_id(self) -> str:
        """An id for an answer that the application never saw: a request that is not HTTP, or whose headers are too large."""
        ...


class BoundedHttp(HttpToolsProtocol):
    """One connection. A request line with headers has 32 kB and 10 s, the body after it 60 s."""

    header_seconds = HEADER_SECONDS
    body_seconds = BODY_SECONDS

    _deadline: asyncio.TimerHandle | None = None
    _linger: asyncio.TimerHandle | None = None
    _in_body = False
    _header_bytes = 0
    _unparsed_bytes = 0
    _ignored_bytes = 0
    _tell_lost: Callable[[], None] | None = None
    _held_back = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._arm(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._linger is not None:
            self._linger.cancel()
        super().connection_lost(exc)
        tell, self._tell_lost = self._tell_lost, None
        if tell is not None:
            tell()

    def watch(self, tell: Callable[[], None] | None) -> bool:
        """See ``edge.connection.Line``."""
        self._tell_lost = tell
        if tell is None and self._held_back:
            self.loop.call_soon(self._go_on)
        return self.parser is not None

    def write(self, data: bytes) -> bool:
        """See ``edge.connection.Line``. With a request behind this one in the pipeline, the cycle here may be that one's."""
        cycle = self.cycle
        if self.pipeline or self.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding or cycle.response_complete:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def _hold_back(self, data: bytes) -> None:
        """Keep what is sent behind a stream for later. To stop reading, as uvicorn does, would hide that the client leaves."""
        self._held_back += data
        if len(self._held_back) > HEADER_BYTES:
            self.transport.abort()

    def _go_on(self) -> None:
        data, self._held_back = self._held_back, b""
        if not self.transport.is_closing():
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces while headers are read, so that what the parser holds back stays bounded."""
        if self._tell_lost is not None and not self._in_body:
            self._hold_back(data)
            return
        if self._deadline is None and not self._in_body:
            self._arm(self.header_seconds)
        while data and not self.transport.is_closing():
            in_headers = not self._in_body
            piece = data[:_PIECE_BYTES] if in_headers else data
            data = data[len(piece) :]
            super().data_received(piece)
            if in_headers and not self._in_body:
                self._unparsed_bytes += len(piece)
                if self._unparsed_bytes > HEADER_BYTES + _PIECE_BYTES:
                    self._refuse_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[LINE] = self  # pyright: ignore[reportGeneralTypeIssues]
        self._header_bytes = 0
        self._unparsed_bytes = 0
        self._ignored_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_header(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        if self.transport.is_closing():
            return
        self._in_body = True
        self._arm(self.body_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.transport.is_closing():
            return
        super().on_body(body)
        if self.cycle.response_complete:
            self._ignored_bytes += len(body)
            if self._ignored_bytes > _IGNORED_BODY_BYTES:
                self.transport.abort()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._unparsed_bytes = 0
        self._disarm()
        if not self.transport.is_closing():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self._refuse(400, "bad_request", "This is not an HTTP request.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self._answered)
        self.tasks.add(task)

    def _answered(self, task: asyncio.Task[None]) -> None:
        """A reader that takes nothing must not keep a closed connection, and what is buffered for it, alive."""
        self.tasks.discard(task)
        if self.transport.is_closing():
            self._linger = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES and not self.transport.is_closing():
            self._refuse_headers()

    def _refuse_headers(self) -> None:
        self._refuse(431, "headers_too_large", "The request's headers are larger than 32 kB.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        request_id = cast("ServedApp", self.config.app).new_request_id()
        title = STATUS_LINE[status].decode("ascii").strip().split(" ", 2)[-1]
        body = msgspec.json.encode(
            {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail, "request_id": request_id}
        )
        head = (
            f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[status] + head.encode("ascii") + body)
        self.transport.close()

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.abort()


class HttpServer:
    """Serves one application on a listening socket, which it closes, until stopped. Installs no signal handlers."""

    def __init__(self, app: ServedApp, listener: socket.socket) -> None:
        self._config = Config(
            cast("ASGI3Application", app),
            http=BoundedHttp,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._server = Server(self._config)
        self._sockets = [listener]
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Take connections, those that wait already too. Returns the port."""
        self._config.load()
        self._server.lifespan = LifespanOff(self._config)
        await self._server.startup(sockets=self._sockets)
        self._ticking = asyncio.create_task(self._server.main_loop(), name="http-server")
        return int(self._sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no new connections, give open ones ``DRAIN_SECONDS``, then cancel them. Harmless when called twice."""
        ticking, self._ticking = self._ticking, None
        if ticking is None:
            return
        self._server.should_exit = True
        ticking.cancel()
        await asyncio.wait((ticking,))
        for listening in self._server.servers:
            listening.close()
        for listener in self._sockets:
            listener.close()
        await self._part()

    async def _part(self) -> None:
        """See connections end by themselves, then end them. uvicorn's own way sleeps a tenth of a second at least."""
        state = self._server.server_state
        for connection in tuple(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody when one ends
                    await asyncio.sleep(_PARTING_POLL_S)
        tasks = tuple(state.tasks)
        for task in tasks:
            task.cancel()
        for connection in tuple(state.connections):
            connection.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
