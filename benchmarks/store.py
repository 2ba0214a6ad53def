"""The store: how fast turns are accepted, and how fast a large store answers over HTTP.

``raw_commit_per_s`` is SQLite's own rate in the same run, alternating ABBA with ours: 32 connections, one row in one FULL commit
each. ``raw_commit_alone_per_s`` is the same by one connection that waits for nobody. All HTTP is one client at a time unless said.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import uvloop

from antiphon.app.interpreter import tune_interpreter
from antiphon.app.system import SystemClock, SystemIds
from antiphon.core.generation import TurnParams
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.generations.base import CurrentLeaf, NewUserMessage, TurnToAccept
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.sql.sqlite import SqliteDatabase
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import Served, served
from benchmarks.store_data import CJK, COMMON, RARE, ensure_store
from benchmarks.store_depth import Client, long_conversations, p95_of
from benchmarks.store_load import crowd, streams_and_writers

WRITERS = 32
QUESTION = "What is the difference between a list and a tuple, and when would I want to use the one and not the other?"
CONFIG = """
[[pools]]
name = "small"
model = "reference"
engine = "reference"
output_tokens_per_s = 200
blocks = 8192

[[plans]]
name = "free"
models = ["small"]
tokens_per_minute = 100000000
requests_per_minute = 1000000
concurrency = 10000
"""


@dataclass(slots=True)
class Store:
    """The SQL drivers on a database of their own."""

    conversations: SqlConversations
    generations: SqlGenerations
    owner: Owner
    clock: SystemClock
    ids: SystemIds

    async def conversation(self) -> ConversationId:
        now, name = self.clock.now(), ConversationId(self.ids.new(IdKind.CONVERSATION))
        head = Conversation(name, self.owner.tenant_id, self.owner.user_id, "", None, None, 1, False, False, False, now, now)
        await self.conversations.create(head)
        return name

    async def turn(self) -> TurnToAccept:
        """A turn in a conversation of its own. Accepting it writes two messages, a generation, the head, the index."""
        message = NewUserMessage(MessageId(self.ids.new(IdKind.MESSAGE)), CurrentLeaf(), QUESTION, 24)
        return TurnToAccept(
            owner=self.owner,
            conversation_id=await self.conversation(),
            what=message,
            message_id=MessageId(self.ids.new(IdKind.MESSAGE)),
            generation_id=GenerationId(self.ids.new(IdKind.GENERATION)),
            model="smol",
            requested_model="small",
            params=TurnParams(max_tokens=64),
            plan="free",
            key_id=None,
            idempotency=None,
            now=self.clock.now(),
            pool="small",
        )


async def accept_rate(store: Store, seconds: float) -> float:
    """Turns accepted per second by ``WRITERS`` at once, each turn in a conversation of its own."""
    total = 0
    free = [await store.turn() for _ in range(round(seconds * 4000))]
    ends_at = time.perf_counter() + seconds

    async def writer() -> None:
        nonlocal total
        while free and time.perf_counter() < ends_at:
            await store.generations.accept(free.pop())
            total += 1

    began = time.perf_counter()
    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return total / (time.perf_counter() - began)


async def accept_latencies(store: Store, *, per_s: int, seconds: float) -> list[float]:
    """Milliseconds of each accept, sent at a fixed rate whatever came of those before."""
    free = [await store.turn() for _ in range(round(per_s * seconds))]
    taken: list[float] = []

    async def one(due: float) -> None:
        await asyncio.sleep(due - time.perf_counter())
        began = time.perf_counter()
        await store.generations.accept(free.pop())
        taken.append((time.perf_counter() - began) * 1e3)

    start = time.perf_counter() + 0.1
    await asyncio.gather(*(one(start + number / per_s) for number in range(len(free))))
    return taken


def raw_commits(folder: Path, connections: int, seconds: float) -> float:
    """One-row FULL commits per second by so many connections, each in a thread."""
    path = folder / f"raw-{connections}.db"
    first = _raw_connection(path)
    first.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    counts = [0] * connections
    ends_at = time.perf_counter() + seconds

    def commit_on(place: int) -> None:
        connection = _raw_connection(path)
        while time.perf_counter() < ends_at:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows (text) VALUES (?)", (QUESTION,))
            connection.execute("COMMIT")
            counts[place] += 1
        connection.close()

    began = time.perf_counter()
    threads = [threading.Thread(target=commit_on, args=(place,)) for place in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.close()
    return sum(counts) / (time.perf_counter() - began)


def _raw_connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


async def writes(report: Report, *, quick: bool) -> None:
    """Accept against SQLite itself."""
    seconds = 1.5 if quick else 3.0
    ours: list[float] = []
    shared: list[float] = []
    alone: list[float] = []
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as name:
        folder = Path(name)
        db = SqliteDatabase(folder / "antiphon.db")
        await db.open()
        clock, ids = SystemClock(), SystemIds()
        store = Store(SqlConversations(db), SqlGenerations(db), Owner(TenantId("tenant_b"), UserId("user_b")), clock, ids)
        tune_interpreter()  # as the server does
        await accept_rate(store, 0.3)
        for number in range(2 if quick else 4):
            if number % 2 == 0:
                ours.append(await accept_rate(store, seconds))
            shared.append(await asyncio.to_thread(raw_commits, folder, WRITERS, seconds))
            alone.append(await asyncio.to_thread(raw_commits, folder, 1, seconds))
            if number % 2 == 1:
                ours.append(await accept_rate(store, seconds))
            progress(f"accept {ours[-1]:.0f}/s; raw commits {shared[-1]:.0f}/s by {WRITERS} connections, {alone[-1]:.0f}/s by one")
        await asyncio.to_thread(os.sync)  # what the rounds left unwritten is not what these measure
        latencies = await accept_latencies(store, per_s=20, seconds=16)
        await db.close()
    report.results["accept_per_s"] = round(median(ours), 1)
    report.results["raw_commit_per_s"] = round(median(shared), 1)
    report.results["raw_commit_alone_per_s"] = round(median(alone), 1)
    report.results["accept_ms_p50"] = round(percentile(latencies, 0.5), 2)
    report.results["accept_ms_p99"] = round(percentile(latencies, 0.99), 2)
    report.ratios["accept_vs_raw"] = round(median([one / other for one, other in zip(ours, shared, strict=True)]), 3)
    report.ratios["accept_vs_raw_alone"] = round(median([one / other for one, other in zip(ours, alone, strict=True)]), 3)
    report.n += len(latencies)


def reads(report: Report, server: Served, *, seed: int, quick: bool) -> None:
    """A large store over HTTP, by the user who owns half of it."""
    client, chance = Client.of(server), random.Random(seed)
    rounds = 40 if quick else 150
    report.n += rounds * 5
    cursors: list[str] = [""]
    for _ in range(20):
        _, page = client.get(f"/v1/conversations?limit=100{cursors[-1]}")
        cursors.append(f"&after={page['next']}")
    report.results["sidebar_ms_p95"] = p95_of(rounds, lambda: client.get(f"/v1/conversations?limit=30{chance.choice(cursors)}")[0])

    def search(*questions: str) -> float:
        taken, page = client.get(f"/v1/search?limit=30&q={quote(chance.choice(questions))}")
        assert page["data"], questions
        return taken

    report.results["search_rare_ms_p95"] = p95_of(rounds, lambda: search(RARE))
    report.results["search_common_ms_p95"] = p95_of(rounds, lambda: search(COMMON, f"{COMMON} {COMMON[:4]}"))
    report.results["search_ms_p95"] = max(report.results["search_rare_ms_p95"], report.results["search_common_ms_p95"])
    report.results["search_cjk_ms_p95"] = p95_of(rounds, lambda: search(CJK, CJK[0], "太阳系", "天気"))
    progress(f"large store: {report.results}")


def main() -> None:
    asked = options("store")
    report = Report("store", "reference", asked.seed)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the server's own loop
        runner.run(writes(report, quick=asked.quick))
    folder = ensure_store(5_000 if asked.quick else 100_000)
    report.results["conversations"] = 5_000 if asked.quick else 100_000
    with served(CONFIG, kept=folder) as server:
        reads(report, server, seed=asked.seed, quick=asked.quick)
        long_conversations(report, server, quick=asked.quick)
    with served(CONFIG) as server:
        report.results.update(asyncio.run(streams_and_writers(server, seconds=15 if asked.quick else 60)))
        progress(f"streams and writers: {report.results}")
        report.results.update(asyncio.run(crowd(server, streams=100 if asked.quick else 500)))
    report.print_json()


if __name__ == "__main__":
    main()
