"""Two crowds at a server: streams beside writers, and many open streams beside the rest of the API."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.report import percentile, progress
from benchmarks.served import Served

_ANSWER_TOKENS = 200
_LINE = 1 << 20


@dataclass(slots=True)
class Caller:
    """One keep-alive connection that speaks plain HTTP/1.1."""

    server: Served
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object], float]:
        """Status, JSON and milliseconds."""
        began = time.perf_counter()
        status, headers = await self._send(method, path, body, accept="application/json")
        assert self.reader is not None
        content = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return status, json.loads(content) if content else {}, (time.perf_counter() - began) * 1e3

    async def open_stream(self, path: str) -> asyncio.StreamReader:
        """The body of an event stream, chunked as it comes."""
        await self._send("GET", path, None, accept="text/event-stream")
        assert self.reader is not None
        return self.reader

    async def _send(self, method: str, path: str, body: object, *, accept: str) -> tuple[int, dict[str, str]]:
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(*self.server.address, limit=_LINE)
        content = b"" if body is None else json.dumps(body).encode()
        host = self.server.url.removeprefix("http://")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {self.server.key}", f"Accept: {accept}"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}", "", ""]
        self.writer.write("\r\n".join(lines).encode() + content)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return int(head[0].split()[1]), headers

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


@dataclass(slots=True)
class Tally:
    """What a crowd met."""

    turns: dict[str, list[str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    api_ms: list[float] = field(default_factory=list)


async def _new_conversation(caller: Caller) -> str:
    status, body, _ = await caller.call("POST", "/v1/conversations", {})
    assert status == 201, body
    return str(body["id"])


async def _send_turn(caller: Caller, conversation: str, *, tokens: int) -> tuple[int, dict[str, object], float]:
    path = f"/v1/conversations/{conversation}/messages"
    body = {"content": "tell me", "parent_message_id": None, "params": {"max_tokens": tokens}}
    return await caller.call("POST", path, body)


@asynccontextmanager
async def _readers(server: Served, generations: list[str], count: int) -> AsyncIterator[None]:
    """``count`` streams, spread over the generations, each read to its end or to the context's."""
    callers = [Caller(server) for _ in range(count)]

    async def read(caller: Caller, generation: str) -> None:
        stream = await caller.open_stream(f"/v1/generations/{generation}/stream")
        while await stream.read(65_536):
            pass

    tasks = [asyncio.create_task(read(caller, generations[place % len(generations)])) for place, caller in enumerate(callers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for caller in callers:
            caller.close()


async def streams_and_writers(server: Served, *, seconds: float, streams: int = 50, writers: int = 20) -> dict[str, float | None]:
    """Streams that are read all the time beside writers that send, rename and rate; then every accepted turn is looked up."""
    tally, ends_at = Tally(), time.perf_counter() + seconds

    async def stream() -> None:
        caller, conversation = Caller(server), ""
        conversation = await _new_conversation(caller)
        while time.perf_counter() < ends_at:
            status, body, _ = await _send_turn(caller, conversation, tokens=_ANSWER_TOKENS)
            if _note(tally, conversation, status, body):
                async with _readers(server, [str(body["generation_id"])], 1):
                    await asyncio.sleep(1.0)
        caller.close()

    async def write() -> None:
        caller = Caller(server)
        conversation = await _new_conversation(caller)
        while time.perf_counter() < ends_at:
            status, body, _ = await _send_turn(caller, conversation, tokens=4)
            _note(tally, conversation, status, body)
            status, body, _ = await caller.call("PATCH", f"/v1/conversations/{conversation}", {"title": f"at {time.perf_counter()}"})
            if status != 200:
                tally.refused.append(f"{status} {body.get('code')}")
            await asyncio.sleep(0.05)
        caller.close()

    await asyncio.gather(*(stream() for _ in range(streams)), *(write() for _ in range(writers)))
    lost = await _lost(server, tally)
    locked = (server.data / "server.log").read_text(errors="replace").count("database is locked")
    unavailable = sum("store_unavailable" in text for text in tally.refused)
    sent = sum(map(len, tally.turns.values()))
    progress(f"{sent} turns accepted, {len(tally.refused)} refused {sorted(set(tally.refused))}, {lost} lost")
    return {"locked_errors": locked + unavailable, "lost_writes": lost, "accepted_turns": sent, "refused": len(tally.refused)}


def _note(tally: Tally, conversation: str, status: int, body: dict[str, object]) -> bool:
    if status == 202:
        tally.turns.setdefault(conversation, []).append(str(body["message_id"]))
        return True
    tally.refused.append(f"{status} {body.get('code')}")
    return False


async def _lost(server: Served, tally: Tally) -> int:
    caller, lost = Caller(server), 0
    for conversation, accepted in tally.turns.items():
        _, body, _ = await caller.call("GET", f"/v1/conversations/{conversation}/tree")
        tree = json.dumps(body)
        lost += sum(f'"{message}"' not in tree for message in accepted)
    caller.close()
    return lost


async def crowd(server: Served, *, streams: int, generations: int = 50, samples: int = 400) -> dict[str, float | None]:
    """The API's p99 while so many streams are open; the store has five connections, four that read and one that writes."""
    caller = Caller(server)
    named: list[str] = []
    conversation = await _new_conversation(caller)
    for _ in range(generations):
        status, body, _ = await _send_turn(caller, conversation, tokens=1000)
        if status == 202:
            named.append(str(body["generation_id"]))
    tally = Tally()
    paths = [f"/v1/conversations/{conversation}", "/v1/conversations?limit=30", f"/v1/conversations/{conversation}/messages"]
    async with _readers(server, named, streams):
        await asyncio.sleep(1.5)
        for number in range(samples):
            _, _, taken = await caller.call("GET", paths[number % len(paths)])
            tally.api_ms.append(taken)
            await asyncio.sleep(0.005)
    caller.close()
    return {"api_ms_p99_pool5": round(percentile(tally.api_ms, 0.99), 2), "api_ms_p50_pool5": round(percentile(tally.api_ms, 0.5), 2)}
