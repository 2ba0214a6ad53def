"""Readers that lose their connection: whatever cursor they come back with, the text they end up with is the text.

In process, against the memory log and the journal: writers append ``nasty`` text at their own pace, some logs are folded
because they are long, some are taken over by a second epoch, and readers come before, during and after. Over real sockets:
a served reference engine. Every reader is cut off at random places and compares, byte for byte, at the end.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import aiohttp

from antiphon.app.system import SystemClock
from antiphon.client.sse import SseParser
from antiphon.core.events import Delta, Done, LogEntry, Meta
from antiphon.core.generation import Sampling
from antiphon.core.ids import GenerationId, TenantId, UserId
from antiphon.core.telemetry import NullTelemetry
from antiphon.edge.services import ServerState
from antiphon.edge.stream import Streams, Viewer
from antiphon.engines.base import ReplicaSpec, SampleRow, SequenceStep, StepPlan, prompt_sha256
from antiphon.engines.reference import ReferenceExecutor
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.orchestrator.readers import Readers
from antiphon.orchestrator.settings import Timing
from antiphon.stores.conversations.base import Owner
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from benchmarks.report import Report, options, progress
from benchmarks.served import Served, served

CURSORS = ("none", "last", "duplicate", "bare seq", "future", "other epoch", "garbage")
READERS = 20
GENERATIONS_AT_ONCE = 10
OWNER = Owner(TenantId("tenant_1"), UserId("user_1"))
CONFIG = """
[[plans]]
name = "free"
tokens_per_minute = 1000000000
requests_per_minute = 10000000
concurrency = 100000
max_output_tokens = 1024
[[pools]]
name = "small"
model = "reference"
engine = "reference"
output_tokens_per_s = 120
prefill_tokens_per_s = 100000
blocks = 8192
vocabulary = "nasty"
"""

Pieces = AsyncIterator[bytes]
Connect = Callable[[str | None], Any]
"""Opens the stream after a cursor: an async context manager that yields pieces of bytes, or ``None`` for a 204."""


@dataclass(slots=True)
class Tally:
    runs: int = 0
    mismatches: int = 0
    disconnects: int = 0
    cursors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Screen:
    """What one reader has: the text, the id it was complete at, and whether the end has come."""

    text: str = ""
    last_id: str | None = None
    ended: bool = False

    def take(self, kind: str, data: str, event_id: str) -> None:
        if kind == "delta":
            self.text += json.loads(data)["text"]
        elif kind == "snapshot":
            self.text = json.loads(data)["text"]
        elif kind in {"done", "error"}:
            self.ended = True
        if event_id:
            self.last_id = event_id


def cursor_of(kind: str, screen: Screen, random: Random) -> str | None:
    """What the reader sends, of that kind."""
    if screen.last_id is None or kind == "none":
        return None
    epoch, _, seq = screen.last_id.partition("-")
    match kind:
        case "bare seq":
            return seq
        case "future":
            return f"{epoch}-{int(seq) + random.randrange(1000, 100_000)}"
        case "other epoch":
            return f"{int(epoch) + random.randrange(5, 50)}-{seq}"
        case "garbage":
            return random.choice(("", "x", "0x1-2", "1-", "-1", "1-2-3", "9" * 10_000, "1 - 2", "é", "NaN", "1e3", "١-٢"))
        case _:
            return screen.last_id


async def read(connect: Connect, random: Random, tally: Tally) -> Screen:
    """One reader's way to the end, with one to four disconnects."""
    screen = Screen()
    kinds = [random.choice(CURSORS) for _ in range(random.randrange(1, 5))]
    for kind in ["none", *kinds]:
        await part(connect, screen, cursor_of(kind, screen, random), random.choice((0, 1, 2, 5, 20, 60)))
        if kind == "duplicate" and not screen.ended:
            # The same place once more: what came after it has not arrived.
            before = Screen(screen.text, screen.last_id)
            await part(connect, Screen(screen.text, screen.last_id), screen.last_id, 3)
            screen.text, screen.last_id = before.text, before.last_id
        tally.cursors[kind] += 1
        tally.disconnects += 1
        if screen.ended:
            break
    while not screen.ended:
        await part(connect, screen, screen.last_id, None)
    return screen


async def part(connect: Connect, screen: Screen, cursor: str | None, events: int | None) -> None:
    """One connection: up to so many events, then it is cut."""
    if cursor is None:
        screen.text, screen.last_id = "", None
    async with connect(cursor) as pieces:
        if pieces is None:
            screen.ended = True
            return
        parser = SseParser()
        taken = 0
        async for piece in pieces:
            for event in parser.push(piece):
                if event.kind in {"status", "title", "reconnect"}:
                    continue
                if events is not None and taken >= events:
                    return
                screen.take(event.kind, event.data, event.id)
                taken += 1
                if screen.ended:
                    return


# --- in process -----------------------------------------------------------------------------------


class InProcess:
    """The edge's streams over one log, without sockets."""

    def __init__(self, log: GenerationLog) -> None:
        self.log = log
        self._readers = Readers(SystemClock())
        services = SimpleNamespace(
            log=log,
            runner=SimpleNamespace(reading=self._reading),
            clock=SystemClock(),
            timing=Timing(),
            telemetry=NullTelemetry(),
            state=ServerState(),
        )
        self.streams = Streams(cast("Any", services), self._allowed)

    @asynccontextmanager
    async def _reading(self, generation_id: GenerationId) -> AsyncIterator[Any]:
        async def none() -> AsyncIterator[Any]:
            return
            yield

        async with self._readers.reading(generation_id):
            yield none()

    async def _allowed(self, credentials: object) -> None:
        pass

    def connect(self, generation_id: GenerationId) -> Connect:
        @asynccontextmanager
        async def opened(cursor: str | None) -> AsyncIterator[Pieces | None]:
            viewer = Viewer(OWNER, generation_id, cursor, ())
            if await self.streams.already_finished(viewer):
                yield None
                return
            queue: asyncio.Queue[bytes | None] = asyncio.Queue()
            left = asyncio.Event()

            async def receive() -> dict[str, Any]:
                await left.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                if message["type"] == "http.response.body":
                    queue.put_nowait(message.get("body", b""))

            answering = asyncio.create_task(self.streams.stream(viewer)({"type": "http"}, receive, cast("Any", send)))
            answering.add_done_callback(lambda _: queue.put_nowait(None))

            async def pieces() -> Pieces:
                while (piece := await queue.get()) is not None:
                    yield piece

            try:
                yield pieces()
            finally:
                left.set()
                await answering

        return opened


def answer_of(prompt: list[int], tokens: int) -> tuple[list[int], list[str]]:
    """The reference engine's ids for a prompt, and the text that each of them completes."""
    executor = ReferenceExecutor(ReplicaSpec("p", "reference", "m", "", blocks=64, vocabulary="nasty"))
    sampling = Sampling(max_tokens=tokens)
    ids: list[int] = []
    past, new = 0, list(prompt)
    text = ReferenceTokenizer("nasty").text_stream()
    pieces: list[str] = []
    for _ in range(tokens):
        row = SampleRow(past + len(new), sampling, prompt_sha256(prompt), tuple(ids))
        step = StepPlan((SequenceStep(1, tuple(new), past, tuple(range(1 + (past + len(new)) // 32)), row),))
        past += len(new)
        ids.append(executor.step(step).sampled[0].token_id)
        new = [ids[-1]]
        pieces.append(text.push(ids[-1]))
    pieces[-1] += text.finish()
    return ids, pieces


async def write(log: GenerationLog, generation_id: GenerationId, seed: int, random: Random) -> str:
    """Append a whole answer; returns its text."""
    ids, pieces = answer_of(ReferenceTokenizer("nasty").encode(f"seed {seed}"), random.randrange(40, 90))
    await log.open(generation_id, 1)
    epoch, seq, takeover = 1, 1, random.randrange(len(ids)) if random.random() < 0.3 else -1
    await log.append(generation_id, [LogEntry(1, 1, Meta(generation_id, None, None, None, "m", "m"))])
    held_ids: list[int] = []
    held = ""
    for at, (token_id, piece) in enumerate(zip(ids, pieces, strict=True)):
        if at == takeover:
            epoch += 1
            await log.open(generation_id, epoch)
        held_ids.append(token_id)
        held += piece
        if not held or (random.random() < 0.3 and at < len(ids) - 1):
            continue
        seq += 1
        await log.append(generation_id, [LogEntry(epoch, seq, Delta(held), tuple(held_ids))])
        held_ids, held = [], ""
        await asyncio.sleep(random.choice((0.0, 0.0, 0.001, 0.003)))
    done = Done("length", 1, 0, len(ids), 0, 1, 1, None, "m", "m")
    await log.append(generation_id, [LogEntry(epoch, seq + 1, done)])
    return "".join(pieces)


async def in_process(log: GenerationLog, name: str, runs: int, seed: int) -> Tally:
    tally, site = Tally(), InProcess(log)
    generations = -(-runs // READERS)

    async def generation(number: int) -> None:
        random = Random(f"{seed}/{name}/{number}")
        generation_id = GenerationId(f"gen_{name}_{number}")

        async def reader(at: int) -> Screen:
            mine = Random(f"{seed}/{name}/{number}/{at}")
            await asyncio.sleep(mine.choice((0.0, 0.0, 0.02, 0.1, 0.3)))
            return await read(site.connect(generation_id), mine, tally)

        writing = asyncio.create_task(write(log, generation_id, seed * 1_000_003 + number, random))
        screens = await asyncio.gather(*(reader(at) for at in range(min(READERS, runs - number * READERS))))
        text = await writing
        tally.runs += len(screens)
        tally.mismatches += sum(screen.text.encode() != text.encode() for screen in screens)
        await log.discard(generation_id)

    await at_once(generations, generation)
    return tally


async def at_once(count: int, work: Callable[[int], Any]) -> None:
    gate = asyncio.Semaphore(GENERATIONS_AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await work(number)

    await asyncio.gather(*(one(number) for number in range(count)))


# --- over sockets ---------------------------------------------------------------------------------


async def over_sockets(server: Served, runs: int, seed: int) -> Tally:
    tally = Tally()
    headers = {"Authorization": f"Bearer {server.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as http:

        async def generation(number: int) -> None:
            random = Random(f"{seed}/sockets/{number}")
            async with http.post("/v1/conversations", json={}) as answer:
                conversation = (await answer.json())["id"]
            body = {"content": f"Question {seed} {number}", "params": {"max_tokens": random.randrange(40, 90)}}
            async with http.post(f"/v1/conversations/{conversation}/messages", json=body, headers={"Accept": "application/json"}) as answer:
                assert answer.status == 202, await answer.text()
                sent = await answer.json()

            async def reader(at: int) -> Screen:
                mine = Random(f"{seed}/sockets/{number}/{at}")
                await asyncio.sleep(mine.choice((0.0, 0.0, 0.2, 0.5, 1.0)))
                return await read(socket_connect(http, sent["generation_id"]), mine, tally)

            screens = await asyncio.gather(*(reader(at) for at in range(min(READERS, runs - number * READERS))))
            async with http.get(f"/v1/conversations/{conversation}/messages") as answer:
                text = (await answer.json())["data"][-1]["content"]
            tally.runs += len(screens)
            tally.mismatches += sum(screen.text.encode() != text.encode() for screen in screens)

        await at_once(-(-runs // READERS), generation)
    return tally


def socket_connect(http: aiohttp.ClientSession, generation_id: str) -> Connect:
    @asynccontextmanager
    async def opened(cursor: str | None) -> AsyncIterator[Pieces | None]:
        # A header carries ASCII without control characters; everything else comes as a query.
        header = cursor is not None and cursor.isascii() and cursor.isprintable() and len(cursor) < 4000
        headers = {"Last-Event-ID": cursor} if header and cursor else {}
        params = {} if cursor is None or headers else {"after": cursor}
        async with http.get(f"/v1/generations/{generation_id}/stream", headers=headers, params=params) as answer:
            assert answer.status in {200, 204}, (answer.status, cursor)
            if answer.status == 204:
                yield None
                return
            yield answer.content.iter_any()
            answer.close()

    return opened


def main() -> None:
    asked = options("resume")
    share = 10 if asked.quick else 1
    report = Report("resume", "reference, nasty", asked.seed)
    total = Tally()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:

        async def both() -> list[Tally]:
            clock = SystemClock()
            tallies = []
            for limit_bytes in (2 << 20, 3000):
                memory = MemoryLog(clock, 900, limit_bytes=limit_bytes)
                tallies.append(await in_process(memory, f"memory{limit_bytes}", 2000 // share, asked.seed))
                journal = await JournalLog.open_folder(Path(folder) / str(limit_bytes), clock, 900, limit_bytes=limit_bytes)
                tallies.append(await in_process(journal, f"journal{limit_bytes}", 2000 // share, asked.seed))
                await journal.close()
                progress(f"bound {limit_bytes}: {sum(tally.runs for tally in tallies)} runs in {time.perf_counter() - start:.1f} s")
            return tallies

        tallies = asyncio.run(both())
    with served(CONFIG) as server:
        sockets = asyncio.run(over_sockets(server, 2000 // share, asked.seed))
    for tally in (*tallies, sockets):
        total.runs += tally.runs
        total.mismatches += tally.mismatches
        total.disconnects += tally.disconnects
        total.cursors.update(tally.cursors)
    progress(f"cursors: {dict(total.cursors)}")
    report.n = total.runs
    report.results["runs"] = total.runs
    report.results["socket_runs"] = sockets.runs
    report.results["mismatches"] = total.mismatches
    report.results["disconnects"] = total.disconnects
    report.print_json()
    if total.mismatches:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
