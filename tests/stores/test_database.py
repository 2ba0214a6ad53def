"""The SQLite database: transactions, threads, cancellation, refusals."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from antiphon.core.errors import ConfigErrors, DiskFull, StoreUnavailable
from antiphon.stores.sql.sqlite import SqliteDatabase


@pytest.fixture(autouse=True)
async def notes_table(db: SqliteDatabase) -> None:
    await db.write(lambda tx: tx.exec_driver_sql("CREATE TABLE notes (text TEXT NOT NULL) STRICT"))


def add(text: str) -> sa.TextClause:
    return sa.text("INSERT INTO notes VALUES (:text)").bindparams(text=text)


async def notes(db: SqliteDatabase) -> list[str]:
    return await db.read(lambda tx: list(tx.execute(sa.text("SELECT text FROM notes ORDER BY rowid")).scalars()))


async def test_connections_are_set_up(db: SqliteDatabase) -> None:
    def pragmas(tx: sa.Connection) -> tuple[object, ...]:
        names = ("journal_mode", "foreign_keys", "synchronous", "query_only")
        return tuple(tx.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)

    full, normal = 2, 1
    assert await db.write(pragmas) == ("wal", 1, full, 0)
    assert await db.write(pragmas, durable=False) == ("wal", 1, normal, 0)
    assert await db.write(pragmas) == ("wal", 1, full, 0)
    assert (await db.read(pragmas))[3] == 1


async def test_a_write_that_raises_leaves_nothing(db: SqliteDatabase) -> None:
    def fail(tx: sa.Connection) -> None:
        tx.execute(add("lost"))
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(fail)
    await db.write(lambda tx: tx.execute(add("kept")))
    assert await notes(db) == ["kept"]


async def test_a_reader_cannot_write_and_sees_one_snapshot(db: SqliteDatabase) -> None:
    with pytest.raises(StoreUnavailable):
        await db.read(lambda tx: tx.execute(add("never")))
    seen, written = threading.Event(), threading.Event()
    counts: list[int] = []

    def look_twice(tx: sa.Connection) -> None:
        counts.append(tx.exec_driver_sql("SELECT count(*) FROM notes").scalar_one())
        seen.set()
        assert written.wait(30)
        counts.append(tx.exec_driver_sql("SELECT count(*) FROM notes").scalar_one())

    reading = asyncio.create_task(db.read(look_twice))
    assert await asyncio.to_thread(seen.wait, 5)
    await db.write(lambda tx: tx.execute(add("one")))
    written.set()
    await reading
    assert counts == [0, 0]
    assert await notes(db) == ["one"]


async def test_writes_of_many_tasks_do_not_lock_each_other_out(db: SqliteDatabase) -> None:
    def bump(tx: sa.Connection) -> None:
        count = tx.exec_driver_sql("SELECT count(*) FROM notes").scalar_one()
        tx.execute(add(str(count)))

    await asyncio.gather(*(db.write(bump, durable=number % 2 == 0) for number in range(100)))
    assert await notes(db) == [str(number) for number in range(100)]


async def test_a_cancelled_write_happens_whole_or_not_at_all(db: SqliteDatabase) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(tx: sa.Connection) -> None:
        tx.execute(add("first half"))
        begun.set()
        assert go.wait(30)
        tx.execute(add("second half"))

    running = asyncio.create_task(db.write(slow))
    assert await asyncio.to_thread(begun.wait, 30)
    waiting = asyncio.create_task(db.write(lambda tx: tx.execute(add("never begun"))))
    await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(running, waiting, return_exceptions=True))
    go.set()
    await db.write(lambda tx: tx.execute(add("next")))
    assert await notes(db) == ["first half", "second half", "next"]


async def test_cancelled_reads_give_their_connections_back(db: SqliteDatabase) -> None:
    for _ in range(50):
        task = asyncio.create_task(notes(db))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.gather(*(notes(db) for _ in range(20))) == [[]] * 20


async def test_a_lock_held_elsewhere_is_waited_for_then_refused(db: SqliteDatabase, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "antiphon.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        await db.write(lambda tx: tx.execute(add("refused")))
    assert await notes(db) == [], "readers go on"
    other.execute("ROLLBACK")
    other.close()
    await db.write(lambda tx: tx.execute(add("accepted")))
    assert await notes(db) == ["accepted"]


async def test_a_short_writer_beside_a_running_server_is_waited_for(tmp_path: Path) -> None:
    server, command = SqliteDatabase(tmp_path / "antiphon.db"), SqliteDatabase(tmp_path / "antiphon.db")
    await server.open()
    await command.open()
    both = [db.write(lambda tx, number=number: tx.execute(add(str(number)))) for number in range(30) for db in (server, command)]
    await asyncio.gather(*both)
    assert len(await notes(server)) == 60
    await command.close()
    await server.close()


async def test_a_full_disk_is_said_and_recovered_from(db: SqliteDatabase) -> None:
    await db.write(lambda tx: tx.execute(add("before")))

    def limit(tx: sa.Connection) -> None:
        pages = tx.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def fill(tx: sa.Connection) -> None:
        for _ in range(100):
            tx.execute(add("x" * 4096))

    await db.write(limit)
    with pytest.raises(DiskFull):
        await db.write(fill)
    assert await notes(db) == ["before"]
    await db.write(lambda tx: tx.exec_driver_sql("PRAGMA max_page_count = 1000000"))
    await db.write(fill)
    assert len(await notes(db)) == 101


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database, but long enough to look at" * 100)
    db = SqliteDatabase(tmp_path / "other.db")
    with pytest.raises(StoreUnavailable):
        await db.open()
    await db.close()
    blocked = SqliteDatabase(tmp_path / "other.db" / "below" / "antiphon.db")
    with pytest.raises(StoreUnavailable):
        await blocked.open()
    await blocked.close()


async def test_a_closed_database_refuses_and_leaves_one_file(tmp_path: Path) -> None:
    db = SqliteDatabase(tmp_path / "new" / "antiphon.db")
    with pytest.raises(StoreUnavailable):
        await db.read(lambda tx: None)
    await db.open()
    assert await asyncio.gather(*(db.read(lambda tx: tx.exec_driver_sql("SELECT 1").scalar_one()) for _ in range(8))) == [1] * 8
    await db.close()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["antiphon.db"]
    for call in (db.read(lambda tx: None), db.write(lambda tx: None)):
        with pytest.raises(StoreUnavailable):
            await call


async def test_a_newer_schema_is_refused(db: SqliteDatabase, tmp_path: Path) -> None:
    await db.write(lambda tx: tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    older = SqliteDatabase(tmp_path / "antiphon.db")
    with pytest.raises(ConfigErrors, match=r"store\.url: the database has schema 9999"):
        await older.open()
    await older.close()
