"""The HTTP server against clients that misbehave, on raw sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.types import Receive, Scope, Send

from antiphon.edge.listener import open_listener
from antiphon.edge.server import HEADER_BYTES, BoundedHttp, HttpServer
from tests.awake import awake_s, until


class Echo:
    """Answers with the number of body bytes; ``/slow`` never answers; ``/flood`` sends for as long as it may."""

    def __init__(self) -> None:
        self.running = 0
        self.begun = 0

    def new_request_id(self) -> str:
        return "req_test"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        self.begun += 1
        try:
            if scope["path"] == "/slow":
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            size, more = 0, scope["path"] != "/unread"
            while more:
                message = await receive()
                size, more = size + len(message.get("body", b"")), message.get("more_body", False)
            if scope["path"] == "/flood":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                async with asyncio.timeout(0.5):
                    while True:
                        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            body = str(size).encode()
            headers = [(b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.running -= 1


@pytest.fixture
async def app() -> Echo:
    return Echo()


@pytest.fixture
async def port(app: Echo) -> AsyncIterator[int]:
    server = HttpServer(app, open_listener("127.0.0.1", 0))
    yield await server.start()
    await server.stop()
    assert app.running == 0


@asynccontextmanager
async def dial(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer_to(port: int, request: bytes) -> bytes:
    """Everything the server says to ``request`` until it closes, or 0.5 s of silence."""
    async with dial(port) as (reader, writer):
        received = bytearray()

        async def read() -> None:
            with suppress(ConnectionError):
                while chunk := await reader.read(65_536):
                    received.extend(chunk)

        with suppress(ConnectionError):
            writer.write(request)
        reading, length, silent_since = asyncio.create_task(read()), 0, awake_s()
        while not reading.done() and awake_s() - silent_since < 0.5:
            await asyncio.sleep(0.01)
            if len(received) > length:
                length, silent_since = len(received), awake_s()
        reading.cancel()
        await asyncio.wait({reading})
        return bytes(received)


async def test_ordinary_and_pipelined_requests(port: int) -> None:
    one = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + b"b" * 100_000
    answer = await answer_to(port, one + one + b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.count(b"\r\n\r\n100000") == 2


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\nx-big: " + b"a" * HEADER_BYTES + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x-%d: %s\r\n" % (n, b"a" * 100) for n in range(400)) + b"\r\n",
        b"GET /" + b"a" * HEADER_BYTES + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx-endless: " + b"a" * 4_000_000,
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + b"GET / HTTP/1.1\r\nhost: x\r\nx-big: " + b"a" * 60_000 + b"\r\n\r\n",
    ],
    ids=["one header", "many headers", "address", "endless", "second request"],
)
async def test_large_headers(port: int, request_bytes: bytes) -> None:
    answer = await answer_to(port, request_bytes)
    # A client that is still sending when the connection is closed may lose the answer.
    assert b"HTTP/1.1 431" in answer or (len(request_bytes) > 1_000_000 and not answer)
    if answer:
        assert b"x-request-id: req_test" in answer
        assert answer.rstrip().endswith(b"}")


async def test_headers_just_within_the_bound(port: int) -> None:
    request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-big: " + b"a" * (HEADER_BYTES - 200) + b"\r\n\r\n"
    assert (await answer_to(port, request)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : x\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["TLS", "smuggling", "negative length", "space before the colon", "version", "chunk size"],
)
async def test_what_is_not_http(port: int, request_bytes: bytes) -> None:
    answer = await answer_to(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b'"code":"bad_request"' in answer


@pytest.mark.parametrize(
    "pieces",
    [[b""], [b"GET / HT"], [b"GET / HTTP/1.1\r\n", *[b"x-a: b\r\n"] * 80], [b"\r\n"] * 40],
    ids=["silence", "part of a line", "a header now and then", "empty lines"],
)
async def test_a_request_must_arrive_in_time(port: int, pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "header_seconds", 0.3)
    async with dial(port) as (reader, writer):
        reading = asyncio.create_task(reader.read())
        for piece in pieces:
            if reading.done():
                break
            writer.write(piece)
            await asyncio.sleep(0.05)
        last_written = awake_s()
        await asyncio.wait({reading})
        assert awake_s() - last_written < 1
        assert isinstance(reading.exception(), ConnectionError) or reading.result() == b""


async def test_a_body_must_arrive_in_time(port: int, app: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "body_seconds", 0.3)
    async with dial(port) as (reader, writer):
        began = awake_s()
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await until(lambda: not app.running, within_s=2)
        assert awake_s() - began < 2


async def test_a_reader_that_takes_nothing_is_dropped(port: int, app: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.edge.server.LINGER_SECONDS", 0.2)
    async with dial(port) as (_, writer):
        writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
        writer.write(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: app.begun == 1)
        await until(lambda: not app.running, within_s=3)
        await asyncio.sleep(0.5)


async def test_stop_does_not_wait_for_ever(app: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.edge.server.DRAIN_SECONDS", 1)
    server = HttpServer(app, open_listener("127.0.0.1", 0))
    port = await server.start()
    async with dial(port) as (_, writer):
        writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        while not app.running:
            await asyncio.sleep(0.01)
        began = awake_s()
        await server.stop()
        assert awake_s() - began < 5
        await server.stop()
    assert app.running == 0
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_that_is_taken(port: int, app: Echo) -> None:
    with pytest.raises(OSError):
        await HttpServer(app, open_listener("127.0.0.1", port)).start()
