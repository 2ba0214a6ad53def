"""The store is locked, full or away while answers are being written: the text goes on, and is finalised afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.core.events import Done
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.inference.gateway import Gateway
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.orchestrator.stage import Stage, check_log, shown_text
from tests.system.served import Reading, Server, reference_config

TURN = TurnParams(max_tokens=150)


class Disk(Stage):
    """A stage on the real store and the real journal."""

    def __init__(self, gateway: Gateway, database: SqliteDatabase, log: JournalLog) -> None:
        generations, conversations = SqlGenerations(database), SqlConversations(database)
        super().__init__(gateway, ports={"generations": generations, "conversations": conversations, "log": log})
        self.database = database
        self.generations = generations  # type: ignore[assignment]
        self.conversations = conversations  # type: ignore[assignment]
        self.log = log  # type: ignore[assignment]

    async def until_quiet(self, requests: Any) -> None:
        """Wait until nothing is being written or read any more."""
        async with asyncio.timeout(30):
            while self.runner.running or len(self.runner.readers) or requests.streams.tails.running or await self.generations.count_open():
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)

    async def records(self) -> int:
        return await self.database.read(lambda tx: tx.exec_driver_sql("select count(*) from outbox").scalar_one())


@pytest.fixture
async def disk(gateway: Gateway, tmp_path: Path) -> AsyncIterator[Disk]:
    database = SqliteDatabase(tmp_path / "antiphon.db", busy_ms=100)
    await database.open()
    probe = Stage(gateway)
    log = await JournalLog.open_folder(tmp_path / "log", probe.clock, 900)
    stage = Disk(gateway, database, log)
    await stage.runner.start()
    yield stage
    await stage.close()
    await log.close()
    await database.close()


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Another connection holds the write lock."""
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=40)) as other:
            other.execute("BEGIN IMMEDIATE")
            held.set()
            release.wait(60)
            other.execute("ROLLBACK")

    holding = asyncio.create_task(asyncio.to_thread(hold))
    await asyncio.to_thread(held.wait)
    try:
        yield
    finally:
        release.set()
        await holding


@contextlib.asynccontextmanager
async def full(database: SqliteDatabase) -> AsyncIterator[None]:
    """The database may not grow."""

    def limit(pages: int) -> Callable[..., None]:
        def act(tx: object) -> None:
            tx.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

        return act

    await database.write(limit(1))
    try:
        yield
    finally:
        await database.write(limit(1 << 30))


async def until_refused(stage: Stage, refusal: type[Exception]) -> None:
    """Send until the store has nothing left to give."""
    with pytest.raises(refusal):
        for _ in range(50):
            await stage.send(await stage.conversation(), "word " * 150)


@pytest.mark.parametrize("outage", ["locked", "full"])
async def test_text_goes_on_and_is_finalised_afterwards(disk: Disk, tmp_path: Path, outage: str) -> None:
    accepted = await disk.send(await disk.conversation(), model="slow", params=TURN)
    other = await disk.conversation()
    await disk.until_text(accepted.generation_id)
    away = locked(tmp_path / "antiphon.db") if outage == "locked" else full(disk.database)
    async with away:
        if outage == "locked":
            with pytest.raises(StoreUnavailable):
                await disk.send(other)
        else:
            await until_refused(disk, DiskFull)
        before = await disk.log.state(accepted.generation_id)
        assert before is not None
        await disk.until_text(accepted.generation_id, len(before.text) + 100)
        # It has ended for the engine, and nobody is told before the store knows.
        await asyncio.sleep(1.0)
        if outage == "locked":
            state = await disk.log.state(accepted.generation_id)
            assert state is not None
            assert state.terminal is None
    entries = await disk.entries(accepted.generation_id)
    assert isinstance(check_log(entries), Done)
    message = await disk.message(accepted.message_id)
    assert message.content == shown_text(entries)
    assert (await disk.generation(accepted.generation_id)).status is GenerationStatus.COMPLETE
    again = await disk.send(other, "after it")
    assert (await disk.ended(again.generation_id)).status is GenerationStatus.COMPLETE


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(150)
def test_a_served_answer_outlives_a_store_that_is_locked_for_half_a_minute(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", reference_config(output_tokens_per_s=20))
    server.start()
    try:
        person = server.person()
        conversation, other = person.new_conversation(), person.new_conversation()
        sent = person.send(conversation, "Go on", params={"max_tokens": 700})
        with contextlib.closing(sqlite3.connect(server.data / "antiphon.db", isolation_level=None)) as lock:
            person.read_until(sent["generation_id"], lambda reading: len(reading.text) > 20)
            lock.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            refused = person.http.post(
                f"/v1/conversations/{other}/messages", json={"content": "Now?"}, headers={"Accept": "application/json"}
            )
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            reading = Reading()
            with contextlib.closing(person.events(sent["generation_id"])) as events:
                for event in events:
                    reading.take(event)
                    if time.monotonic() - began > 30:
                        break
            assert not reading.ended
            assert len(reading.text.split()) > 500
            lock.execute("ROLLBACK")
        whole = person.read(sent["generation_id"])
        assert whole.text.startswith(reading.text)
        assert person.message(conversation, sent["message_id"])["content"] == whole.text
        assert isinstance(person.send(other, "Now?"), dict)
        assert isinstance(httpx.get(f"{server.url}/readyz").json()["ready"], bool)
    finally:
        server.end()
