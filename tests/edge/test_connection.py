"""A connection that is lost is noticed by the one task that answers it, on our server and on any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message, Receive, Scope, Send

from antiphon.edge.connection import LINE, ClientGone, Connection
from antiphon.edge.listener import open_listener
from antiphon.edge.server import HEADER_BYTES, HttpServer


class Waiting:
    """Answers each request with one line and then waits until its client has gone."""

    def __init__(self) -> None:
        self.waiting = 0
        self.gone = 0
        self.foreign = False
        self.ends: asyncio.Event | None = None

    def new_request_id(self) -> str:
        return "req_test"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = asyncio.Event()
        if self.foreign:
            del scope[LINE]
        connection = Connection(scope, receive, send, on_gone=left.set)
        while (await receive()).get("more_body"):
            pass
        connection.open()
        tasks = len(asyncio.all_tasks())
        try:
            await connection.start(200, ())
            await connection.write(b"hello")
            self.waiting += 1
            if self.ends is not None:
                await self.ends.wait()
                await connection.finish()
                return
            await left.wait()
            assert connection.gone
            self.gone += 1
            with pytest.raises(ClientGone):
                await connection.write(b"more")
        finally:
            self.waiting -= 1
            connection.close()
        assert self.foreign or len(asyncio.all_tasks()) <= tasks


@pytest.fixture(params=["our server", "another server"])
async def app(request: pytest.FixtureRequest) -> Waiting:
    app = Waiting()
    app.foreign = request.param == "another server"
    return app


@pytest.fixture
async def port(app: Waiting) -> AsyncIterator[int]:
    server = HttpServer(app, open_listener("127.0.0.1", 0))
    yield await server.start()
    await server.stop()


async def _until(app: Waiting, *, waiting: int, gone: int) -> None:
    async with asyncio.timeout(30):
        while (app.waiting, app.gone) != (waiting, gone):
            await asyncio.sleep(0.005)


REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize("leave", ["close", "abort", "half"])
async def test_a_client_that_leaves(app: Waiting, port: int, leave: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
    await _until(app, waiting=1, gone=0)
    if leave == "half":
        writer.write_eof()
    elif leave == "abort":
        writer.transport.abort()
    else:
        writer.close()
    await _until(app, waiting=0, gone=1)
    writer.close()


@pytest.mark.parametrize("behind", [REQUEST, REQUEST[:20]])
async def test_a_client_that_leaves_after_its_next_request(app: Waiting, port: int, behind: bytes) -> None:
    """uvicorn alone would neither read on nor tell the request that is being answered."""
    if app.foreign:
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    await reader.readuntil(b"hello")
    writer.write(behind)
    await asyncio.sleep(0.05)
    writer.transport.abort()
    await _until(app, waiting=0, gone=1)


async def test_a_request_behind_a_stream_waits_for_its_end(app: Waiting, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    app.ends = asyncio.Event()
    writer.write(REQUEST + REQUEST[:10])
    await reader.readuntil(b"hello")
    writer.write(REQUEST[10:])
    await asyncio.sleep(0.05)
    app.ends.set()
    await reader.readuntil(b"0\r\n\r\nHTTP/1.1 200")
    writer.close()


async def test_what_is_sent_behind_a_stream_is_bounded(app: Waiting, port: int) -> None:
    if app.foreign:
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    await reader.readuntil(b"hello")
    writer.write(b"x" * (HEADER_BYTES + 1))
    await _until(app, waiting=0, gone=1)
    writer.close()


async def test_a_send_that_is_stuck_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.edge.connection.SEND_SECONDS", 0.05)

    async def never_receives() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def never_sends(message: Message) -> None:
        del message
        await asyncio.Event().wait()

    connection = Connection({"type": "http"}, never_receives, never_sends, on_gone=lambda: None)
    async with asyncio.timeout(30), connection.watching():
        with pytest.raises(ClientGone):
            await connection.write(b"x")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    sending = asyncio.Event()

    async def never_receives() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def never_sends(message: Message) -> None:
        del message
        sending.set()
        await asyncio.Event().wait()

    async def answer() -> None:
        connection = Connection({"type": "http"}, never_receives, never_sends, on_gone=lambda: None)
        async with connection.watching():
            await connection.write(b"x")

    answering = asyncio.create_task(answer())
    await sending.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
