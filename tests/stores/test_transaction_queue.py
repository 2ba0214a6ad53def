"""Group commit: one sync for many writes, each of them whole or not at all."""

from __future__ import annotations

import asyncio
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from antiphon.core.errors import DiskFull, StaleEpoch
from antiphon.stores.sql.sqlite import SqliteDatabase


@pytest.fixture(autouse=True)
async def notes_table(db: SqliteDatabase) -> None:
    await db.write(lambda tx: tx.exec_driver_sql("CREATE TABLE notes (text TEXT NOT NULL UNIQUE) STRICT"))


def add(tx: sa.Connection, text: str) -> int:
    return tx.exec_driver_sql("INSERT INTO notes VALUES (?)", (text,)).rowcount


async def notes(db: SqliteDatabase) -> list[str]:
    return await db.read(lambda tx: list(tx.exec_driver_sql("SELECT text FROM notes ORDER BY rowid").scalars()))


async def held(db: SqliteDatabase) -> tuple[threading.Event, asyncio.Task[object]]:
    """A write that keeps the thread until the event is set, so that what follows waits together."""
    begun, go = threading.Event(), threading.Event()

    def hold(tx: sa.Connection) -> None:
        tx.exec_driver_sql("SELECT 1")
        begun.set()
        assert go.wait(30)

    task: asyncio.Task[object] = asyncio.create_task(db.write(hold))
    assert await asyncio.to_thread(begun.wait, 30)
    return go, task


async def test_writes_that_wait_commit_together_in_order(db: SqliteDatabase) -> None:
    commits = 0

    def count(_connection: object) -> None:
        nonlocal commits
        commits += 1

    go, holding = await held(db)
    event.listen(sa.Engine, "commit", count)
    try:
        waiting = [asyncio.create_task(db.write(lambda tx, n=number: add(tx, str(n)))) for number in range(20)]
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*waiting) == [1] * 20
    finally:
        event.remove(sa.Engine, "commit", count)
    await holding
    assert commits <= 3
    assert await notes(db) == [str(number) for number in range(20)]


async def test_one_that_fails_harms_no_other(db: SqliteDatabase) -> None:
    def refuse(tx: sa.Connection) -> None:
        add(tx, "refused")
        raise StaleEpoch

    def twice(tx: sa.Connection) -> None:
        add(tx, "b")
        add(tx, "a")

    def full(tx: sa.Connection) -> None:
        add(tx, "full")
        raise DiskFull

    go, holding = await held(db)
    acts = [lambda tx: add(tx, "a"), refuse, twice, full, lambda tx: add(tx, "c")]
    waiting = [asyncio.create_task(db.write(act)) for act in acts]
    await asyncio.sleep(0)
    go.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    await holding
    assert outcomes[0] == outcomes[4] == 1
    assert [type(outcome) for outcome in outcomes[1:4]] == [StaleEpoch, sa.exc.IntegrityError, DiskFull]
    assert await notes(db) == ["a", "c"]


async def test_a_write_sees_those_before_it_in_the_same_group(db: SqliteDatabase) -> None:
    def count(tx: sa.Connection) -> int:
        return tx.exec_driver_sql("SELECT count(*) FROM notes").scalar_one()

    go, holding = await held(db)
    waiting = [asyncio.create_task(db.write(lambda tx, n=number: (add(tx, str(n)), count(tx)))) for number in range(5)]
    await asyncio.sleep(0)
    go.set()
    assert [seen for _, seen in await asyncio.gather(*waiting)] == [1, 2, 3, 4, 5]
    await holding


async def test_one_cancelled_before_its_group_never_runs(db: SqliteDatabase) -> None:
    go, holding = await held(db)
    waiting = [asyncio.create_task(db.write(lambda tx, n=number: add(tx, str(n)))) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    go.set()
    await asyncio.gather(waiting[0], waiting[2], holding)
    assert await notes(db) == ["0", "2"]


async def test_reads_that_wait_share_a_snapshot_and_one_that_fails_harms_no_other(db: SqliteDatabase) -> None:
    begun, go = threading.Barrier(5), threading.Event()
    snapshots = 0

    def hold(tx: sa.Connection) -> None:
        begun.wait(30)
        assert go.wait(30)

    def count(_connection: object) -> None:
        nonlocal snapshots
        snapshots += 1

    def refuse(tx: sa.Connection) -> list[str]:
        raise StaleEpoch

    holding = [asyncio.create_task(db.read(hold)) for _ in range(4)]
    await asyncio.to_thread(begun.wait, 30)
    await db.write(lambda tx: add(tx, "a"))
    waiting = [asyncio.create_task(notes(db)) for _ in range(40)]
    await asyncio.sleep(0)
    event.listen(sa.Engine, "begin", count)
    try:
        go.set()
        assert await asyncio.gather(*waiting) == [["a"]] * 40
    finally:
        event.remove(sa.Engine, "begin", count)
    await asyncio.gather(*holding)
    assert snapshots <= 20, "not one for each"

    mixed = [asyncio.create_task(db.read(refuse) if number % 7 == 3 else notes(db)) for number in range(40)]
    outcomes = await asyncio.gather(*mixed, return_exceptions=True)
    assert all(isinstance(outcome, StaleEpoch) if number % 7 == 3 else outcome == ["a"] for number, outcome in enumerate(outcomes))


async def test_a_read_sees_what_was_written_before_it(db: SqliteDatabase) -> None:
    async def write_and_look(number: int) -> bool:
        await db.write(lambda tx: add(tx, str(number)))
        return str(number) in await notes(db)

    assert all(await asyncio.gather(*(write_and_look(number) for number in range(100))))
