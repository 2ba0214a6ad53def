"""A client for streamed completions that does as little as can be done: what it costs is not what a gateway adds.

A client library spends a millisecond on a request and a tenth on each of its chunks; beside a hundred streams in one process its own
line is longer than all that is measured.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

_CONTENT, _NO_CONTENT = b'"content":"', b'"content":""'
_END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Heard:
    """Seconds from the send to the first token, and how many batches brought tokens."""

    ttft_s: float
    batches: int


class _Line(asyncio.Protocol):
    """One kept connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Heard] | None = None
        self._sent_at = self._ttft_s = 0.0
        self._batches = 0
        self._head: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            return
        if self._head is not None:
            self._head += data
            if b"\r\n\r\n" not in self._head:
                return
            data, self._head = self._head, None
            if not data.startswith(b"HTTP/1.1 200 "):
                self._answer.set_exception(RuntimeError(data.decode("utf-8", "replace")))
                return
        batches = data.count(_CONTENT) - data.count(_NO_CONTENT)
        if batches and not self._batches:
            self._ttft_s = time.perf_counter() - self._sent_at
        self._batches += batches
        if data.endswith(_END):
            self._answer.set_result(Heard(self._ttft_s, self._batches))

    async def ask(self, request: bytes) -> Heard:
        assert self._transport is not None
        self._answer, self._batches, self._head = asyncio.get_running_loop().create_future(), 0, b""
        self._sent_at = time.perf_counter()
        self._transport.write(request)
        return await self._answer


class LeanClient:
    """As many kept connections as there are requests at once."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )
        self._idle: list[_Line] = []

    async def ask(self, body: dict[str, object]) -> Heard:
        """Send one request and hear its answer out. Raises ``RuntimeError`` for any status but 200, ``OSError``."""
        line = self._idle.pop() if self._idle else await self._connect()
        content = json.dumps(body).encode()
        heard = await line.ask(f"{self._head}{len(content)}\r\n\r\n".encode("ascii") + content)
        self._idle.append(line)
        return heard

    async def _connect(self) -> _Line:
        _, line = await asyncio.get_running_loop().create_connection(_Line, self._host, self._port)
        return line
