"""Connections that ask for too much: the server's memory stays bounded, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.system.served import Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

MIB = 2**20
IDLE_CONNECTIONS = 10_000
IDLE_BYTES_EACH = 24_000
LOGINS = 200
SERVED_WITHIN_S = 1.0


def resident(server: Server) -> int:
    """Bytes of the server's own process that lie in memory."""
    assert server.process is not None
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def dial(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(server.url)
    return await asyncio.open_connection(parts.hostname, parts.port)


class Neighbour:
    """Somebody else, who asks all the time: how long the slowest answer took, and how much memory the server had at most."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.slowest_s = 0.0
        self.most_bytes = 0
        self.answers = 0

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._ask())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not task.done() or task.cancelled(), task.exception()

    async def _ask(self) -> None:
        async with httpx.AsyncClient(base_url=self._server.url, timeout=30, trust_env=False) as client:
            while True:
                began = time.monotonic()
                assert (await client.get("/healthz")).status_code == 200
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.most_bytes = max(self.most_bytes, resident(self._server))
                self.answers += 1
                await asyncio.sleep(0.05)


async def test_a_header_of_two_hundred_megabytes(server: Server) -> None:
    before, neighbour = resident(server), Neighbour(server)
    sent = 0
    async with neighbour.asking():
        reader, writer = await dial(server)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        with contextlib.suppress(ConnectionError):
            while sent < 200 * MIB:
                writer.write(b"a" * 65_536)
                await writer.drain()
                sent += 65_536
        told = await _rest(reader)
        writer.transport.abort()
    assert not told or told.startswith(b"HTTP/1.1 431"), told[:100]
    assert neighbour.most_bytes - before < 30 * MIB
    assert neighbour.slowest_s < SERVED_WITHIN_S
    assert sent < 200 * MIB or told


async def test_slow_headers_are_cut(server: Server) -> None:
    """Five hundred who send a byte a second: all gone within the bound, others served."""
    neighbour = Neighbour(server)

    async def drip() -> float:
        began = time.monotonic()
        reader, writer = await dial(server)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"a")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await reader.read(4096)
        writer.transport.abort()
        return time.monotonic() - began

    async with neighbour.asking():
        lasted = await asyncio.gather(*(drip() for _ in range(500)))
    assert max(lasted) < 20
    assert statistics.median(lasted) > 5, "cut for another reason than slowness"
    assert neighbour.slowest_s < SERVED_WITHIN_S


async def test_ten_thousand_idle_connections(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < IDLE_CONNECTIONS + 500:
        pytest.skip("this machine's limit of open files is too low for the clients")
    before, neighbour = resident(server), Neighbour(server)
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with neighbour.asking():
        for _ in range(IDLE_CONNECTIONS // 250):
            held += await asyncio.gather(*(_idle(server) for _ in range(250)))
        most = resident(server) - before
        answers = neighbour.answers
        await asyncio.sleep(2)
        assert neighbour.answers > answers + 10
        open_now = sum(not reader.at_eof() for reader, _ in held)
        for _, writer in held:
            writer.transport.abort()
    with capsys.disabled():
        print(f"\n{open_now} idle connections: {most / IDLE_CONNECTIONS:.0f} bytes each; slowest answer beside {neighbour.slowest_s:.2f} s")
    assert open_now == IDLE_CONNECTIONS
    assert most < IDLE_CONNECTIONS * IDLE_BYTES_EACH
    assert neighbour.slowest_s < 2 * SERVED_WITHIN_S


async def test_two_hundred_sign_ins_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(tmp_path / "data", reference_config())
    server.start()
    try:
        before, neighbour = resident(server), Neighbour(server)
        async with neighbour.asking(), httpx.AsyncClient(base_url=server.url, timeout=120, trust_env=False) as client:
            tries = [client.post("/v1/session", json={"name": f"name{i}", "password": "a wrong password"}) for i in range(LOGINS)]
            statuses = [answer.status_code for answer in await asyncio.gather(*tries)]
        with capsys.disabled():
            more = (neighbour.most_bytes - before) / MIB
            print(f"\n{LOGINS} sign-ins: {more:.0f} MiB more; slowest answer beside {neighbour.slowest_s:.2f} s")
        assert set(statuses) == {401, 429}
        assert neighbour.most_bytes - before < 200 * MIB, "each hash takes 19 MiB; without a bound 200 would take 3.8 GiB"
        assert neighbour.slowest_s < 2 * SERVED_WITHIN_S
        eventually(lambda: resident(server) - before < 100 * MIB, within_s=30, what="the memory of hashing is given back")
    finally:
        server.end()


async def _idle(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that asked once, kept alive."""
    reader, writer = await dial(server)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    return reader, writer


async def _rest(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(10):
            return await reader.read()
    return b""
