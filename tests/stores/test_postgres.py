"""The PostgreSQL database: transactions, collisions, cancellation, refusals, outages."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from antiphon.core.clock import ManualClock
from antiphon.core.errors import ConfigErrors, Conflict, StoreUnavailable
from antiphon.core.tenancy import UserRole
from antiphon.stores.accounts.base import UserChange
from antiphon.stores.sql import schema
from antiphon.stores.sql.base import stand_alone
from antiphon.stores.sql.postgres import PostgresDatabase
from antiphon.stores.sql.tables import metadata
from tests.contracts.scene import Scene, sql_scene
from tests.ids import CountingIds
from tests.postgres_server import PostgresServer


@pytest.fixture
async def db(postgres: PostgresDatabase) -> AsyncIterator[PostgresDatabase]:
    """With a table of notes."""
    await postgres.write(lambda tx: tx.exec_driver_sql("CREATE TABLE notes (id bigserial PRIMARY KEY, text text NOT NULL)"))
    yield postgres
    await postgres.write(lambda tx: tx.exec_driver_sql("DROP TABLE notes"))


@pytest.fixture
def scene(postgres: PostgresDatabase, clock: ManualClock, ids: CountingIds) -> Scene:
    return sql_scene(postgres, clock, ids)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """One that may be killed."""
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


def add(text: str) -> sa.TextClause:
    return sa.text("INSERT INTO notes (text) VALUES (:text)").bindparams(text=text)


def count(tx: sa.Connection) -> int:
    return int(tx.exec_driver_sql("SELECT count(*) FROM notes").scalar_one())


def bump(tx: sa.Connection) -> None:
    stand_alone(tx)
    tx.execute(add(str(count(tx))))


async def notes(db: PostgresDatabase) -> list[str]:
    return await db.read(lambda tx: list(tx.execute(sa.text("SELECT text FROM notes ORDER BY id")).scalars()))


async def test_transactions_are_set_up(db: PostgresDatabase) -> None:
    def shown(tx: sa.Connection) -> tuple[object, ...]:
        names = ("transaction_isolation", "transaction_read_only", "synchronous_commit", "statement_timeout", "application_name")
        return tuple(tx.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names)

    assert await db.write(shown) == ("repeatable read", "off", "on", "15s", "antiphon")
    assert (await db.write(shown, durable=False))[2] == "off"
    assert (await db.write(shown))[2] == "on"
    assert (await db.read(shown))[:2] == ("repeatable read", "on")


async def test_a_write_that_raises_leaves_nothing(db: PostgresDatabase) -> None:
    def fail(tx: sa.Connection) -> None:
        tx.execute(add("lost"))
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(fail)
    await db.write(lambda tx: tx.execute(add("kept")))
    assert await notes(db) == ["kept"]


async def test_a_reader_cannot_write_and_sees_one_snapshot(db: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable):
        await db.read(lambda tx: tx.execute(add("never")))
    seen, written = threading.Event(), threading.Event()
    counts: list[int] = []

    def look_twice(tx: sa.Connection) -> None:
        counts.append(count(tx))
        seen.set()
        assert written.wait(30)
        counts.append(count(tx))

    reading = asyncio.create_task(db.read(look_twice))
    assert await asyncio.to_thread(seen.wait, 5)
    await db.write(lambda tx: tx.execute(add("one")))
    written.set()
    await reading
    assert counts == [0, 0]
    assert await notes(db) == ["one"]


async def test_writes_of_many_tasks_and_servers_come_out_as_if_one_by_one(db: PostgresDatabase, postgres_server: PostgresServer) -> None:
    other = PostgresDatabase(postgres_server.url("kept"))
    await asyncio.gather(*(one.write(bump, durable=number % 2 == 0) for number in range(40) for one in (db, other)))
    await other.close()
    assert sorted(map(int, await notes(db))) == list(range(80))


async def test_without_the_second_try_they_would_not(db: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the writes above do collide."""
    monkeypatch.setattr("antiphon.stores.sql.postgres._TRIES", 1)
    ended = await asyncio.gather(*(db.write(bump) for _ in range(40)), return_exceptions=True)
    refused = [one for one in ended if one is not None]
    assert refused
    assert all(isinstance(one, StoreUnavailable) and one.retry_after_ms for one in refused)
    assert len(await notes(db)) == 40 - len(refused)


async def test_of_two_that_write_one_row_the_second_sees_the_first(db: PostgresDatabase) -> None:
    await db.write(lambda tx: tx.execute(add("0")))

    def more(tx: sa.Connection) -> None:
        seen = int(tx.exec_driver_sql("SELECT text FROM notes").scalar_one())
        tx.exec_driver_sql("UPDATE notes SET text = %(text)s", {"text": str(seen + 1)})

    await asyncio.gather(*(db.write(more, durable=False) for _ in range(60)))
    assert await notes(db) == ["60"]


async def test_a_key_put_in_meanwhile_is_found_and_one_that_was_there_is_told(db: PostgresDatabase) -> None:
    await db.write(lambda tx: tx.exec_driver_sql("CREATE UNIQUE INDEX notes_text ON notes (text)"))

    def once(tx: sa.Connection) -> bool:
        if "one" in tx.exec_driver_sql("SELECT text FROM notes").scalars().all():
            return False
        tx.execute(add("one"))
        return True

    assert (await asyncio.gather(*(db.write(once) for _ in range(30)))).count(True) == 1
    with pytest.raises(IntegrityError):
        await db.write(lambda tx: tx.execute(add("one")))


async def test_of_owners_who_leave_at_once_one_stays(scene: Scene) -> None:
    tenant = await scene.tenant()
    owners = [await scene.user(tenant, f"owner-{number}", UserRole.OWNER) for number in range(8)]
    demotion = UserChange(role=UserRole.MEMBER)
    acts = [
        scene.accounts.disable_user(one.id) if number % 2 else scene.accounts.change_user(tenant.id, one.id, demotion)
        for number, one in enumerate(owners)
    ]
    ends = await asyncio.gather(*acts, return_exceptions=True)
    assert [end for end in ends if isinstance(end, BaseException)] == [end for end in ends if isinstance(end, Conflict)]
    assert len([user for user in await scene.accounts.users(tenant.id) if user.role is UserRole.OWNER and not user.disabled]) == 1


async def test_a_cancelled_write_happens_whole_or_not_at_all(db: PostgresDatabase) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(tx: sa.Connection) -> None:
        tx.execute(add("first half"))
        begun.set()
        assert go.wait(30)
        tx.execute(add("second half"))

    running = asyncio.create_task(db.write(slow))
    assert await asyncio.to_thread(begun.wait, 30)
    running.cancel()
    assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError)
    assert await notes(db) == []
    go.set()
    while await notes(db) != ["first half", "second half"]:
        await asyncio.sleep(0.01)


async def test_cancelled_calls_give_their_connections_back(db: PostgresDatabase, postgres_server: PostgresServer) -> None:
    for number in range(200):
        task = asyncio.create_task(notes(db) if number % 2 else db.write(bump))
        await asyncio.sleep(0.0005 * (number % 7))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    query = "SELECT state, count(*) FROM pg_stat_activity WHERE datname = 'kept' AND application_name = 'antiphon' GROUP BY state"
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        async with asyncio.timeout(30):  # the last ones run to their end
            while set(states := dict(connection.execute(query).fetchall())) != {"idle"}:
                await asyncio.sleep(0.01)
    assert states["idle"] <= 16
    assert len({len(found) for found in await asyncio.gather(*(notes(db) for _ in range(30)))}) == 1
    assert (db._waiting_writes, db._waiting_reads) == (0, 0)


async def test_a_lock_held_elsewhere_holds_up_no_reader_and_no_other_row(db: PostgresDatabase, postgres_server: PostgresServer) -> None:
    await db.write(lambda tx: tx.execute(add("one")))
    with psycopg.connect(postgres_server.url("kept")) as other:
        other.execute("UPDATE notes SET text = 'locked'")
        waiting = asyncio.create_task(db.write(lambda tx: tx.exec_driver_sql("UPDATE notes SET text = 'changed'")))
        await db.write(lambda tx: tx.execute(add("two")))
        assert await notes(db) == ["one", "two"]
        assert not waiting.done()
        other.rollback()
        await waiting
    assert (await notes(db))[0] == "changed"


@pytest.mark.slow
async def test_a_restarted_server_is_not_noticed(own_server: PostgresServer) -> None:
    db = PostgresDatabase(own_server.url())
    await db.write(lambda tx: tx.exec_driver_sql("CREATE TABLE notes (id bigserial PRIMARY KEY, text text NOT NULL)"))
    await asyncio.gather(*(db.write(bump) for _ in range(10)), *(notes(db) for _ in range(10)))
    await asyncio.to_thread(own_server.restart)
    assert len(await notes(db)) == 10
    await asyncio.gather(*(db.write(bump) for _ in range(10)), *(notes(db) for _ in range(10)))
    assert sorted(map(int, await notes(db))) == list(range(20))
    await db.close()


async def test_a_killed_server_is_unavailable_until_it_is_back(own_server: PostgresServer) -> None:
    db = PostgresDatabase(own_server.url())
    await db.write(lambda tx: tx.exec_driver_sql("CREATE TABLE notes (id bigserial PRIMARY KEY, text text NOT NULL)"))
    begun, go = threading.Event(), threading.Event()

    def slow(tx: sa.Connection) -> None:
        tx.execute(add("half"))
        begun.set()
        assert go.wait(30)
        tx.execute(add("half"))

    running = asyncio.create_task(db.write(slow))
    assert await asyncio.to_thread(begun.wait, 30)
    await asyncio.to_thread(own_server.kill)
    go.set()
    for call in (running, notes(db), db.write(bump), db.outdated()):
        with pytest.raises(StoreUnavailable) as refused:
            await call
        assert call is not running or refused.value.retry_after_ms
    await asyncio.to_thread(own_server.start)
    assert await notes(db) == []
    await db.write(slow)
    assert await notes(db) == ["half", "half"]
    await db.close()


async def test_what_is_wrong_is_said_at_the_start(free_port: int, postgres_server: PostgresServer) -> None:
    for url, said in (
        (f"postgresql://nobody@127.0.0.1:{free_port}/none", "refused"),
        (postgres_server.url("none"), 'database "none" does not exist'),
        (postgres_server.url().replace("antiphon@", "stranger@"), 'role "stranger" does not exist'),
    ):
        db = PostgresDatabase(url)
        with pytest.raises(StoreUnavailable, match=said):
            await db.open()
        await db.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await db.read(count)


@pytest.mark.slow
async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    db = PostgresDatabase(postgres_server.url("latin"))
    with pytest.raises(ConfigErrors, match="UTF8, not LATIN1"):
        await db.open()
    await db.close()


@pytest.mark.slow
async def test_two_servers_may_migrate_at_once_and_a_newer_schema_is_refused(postgres_server: PostgresServer) -> None:
    both = [PostgresDatabase(postgres_server.create_database("new")), PostgresDatabase(postgres_server.url("new"))]
    befores = [migration.before for migration in await asyncio.gather(*(db.migrate() for db in both))]
    assert None in befores
    assert await both[0].read(schema.version_of) == schema.versions()[-1]
    assert not await both[0].outdated()
    await both[0].write(lambda tx: tx.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'"))
    assert await both[1].outdated()
    await both[0].write(lambda tx: tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    for call in (both[1].outdated(), both[1].migrate()):
        with pytest.raises(ConfigErrors, match="9999"):
            await call
    for one in both:
        await one.close()


async def test_migrations_make_the_tables_the_code_knows(postgres: PostgresDatabase) -> None:
    def difference(tx: sa.Connection) -> list[object]:
        def compared(name: str | None, kind: str, _parents: object) -> bool:
            return kind != "table" or name not in {"alembic_version", "search_index"}

        return list(compare_metadata(MigrationContext.configure(tx, opts={"compare_type": True, "include_name": compared}), metadata))

    def collations(tx: sa.Connection) -> set[str | None]:
        named = "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'text'"
        return set(tx.exec_driver_sql(named).scalars())

    assert await postgres.read(difference) == []
    assert await postgres.read(collations) == {"C"}


async def test_the_database_refuses_to_move_a_message(postgres: PostgresDatabase, scene: Scene) -> None:
    owner = scene.owner()
    head, other = await scene.conversation(owner), await scene.conversation(owner)
    first, second = await scene.exchange(owner, head.id), await scene.exchange(owner, head.id)
    for change in (
        f"parent_id = '{second.message_id}' WHERE id = '{first.user_message_id}'",
        f"parent_id = NULL WHERE id = '{second.user_message_id}'",
        f"conversation_id = '{other.id}' WHERE id = '{first.user_message_id}'",
    ):
        with pytest.raises(IntegrityError, match="never moves"):
            await postgres.write(lambda tx, change=change: tx.exec_driver_sql(f"UPDATE messages SET {change}"))


async def test_fifty_equal_requests_are_one_turn(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turns = [scene.turn(owner, head.id, scene.text(), scene.key()) for _ in range(50)]
    accepted = await asyncio.gather(*(scene.generations.accept(turn) for turn in turns))
    assert len({one.generation_id for one in accepted}) == 1
    assert sum(not one.replayed for one in accepted) == 1
    assert await scene.generations.count_open() == 1


async def test_the_stores_clock_is_the_databases(scene: Scene) -> None:
    first, second = await scene.generations.now(), await scene.generations.now()
    assert first <= second
    assert abs(second.timestamp() - time.time()) < 5


@pytest.mark.slow
async def test_one_server_at_a_time_works_on_a_database(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.stores.sql.server_mark._TRIES", 3)
    first, second = PostgresDatabase(own_server.url()), PostgresDatabase(own_server.url())
    await first.hold()
    await first.migrate()
    with pytest.raises(ConfigErrors, match="another server"):
        await second.hold()
    await second.read(schema.is_current)
    await asyncio.to_thread(own_server.restart)
    await first.write(schema.is_current)
    with pytest.raises(ConfigErrors, match="another server"):
        await second.hold()
    await first.close()
    await second.hold()
    await second.close()


async def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigErrors, match="no address"):
        PostgresDatabase("postgresql://localhost:no-port/x?nonsense=1")
