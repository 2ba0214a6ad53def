"""The schema: migrations and tables agree, and what the database itself refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from antiphon.core.ids import MessageId
from antiphon.stores.sql import schema, search_sqlite
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.sql.tables import metadata
from tests.contracts.scene import Scene


def is_ours(name: str) -> bool:
    """Whether ``tables`` describes it: not Alembic's own table, nor the search index and the tables FTS5 keeps for it."""
    return name != "alembic_version" and not name.startswith(search_sqlite.INDEX)


def definitions(tx: sa.Connection) -> dict[str, str]:
    """Tables and indexes by name, as their creating statements in one spelling."""
    found = tx.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL")
    return {name: " ".join(sorted(sql.replace(",", " ").replace('"', "").split())) for name, sql in found if is_ours(name)}


async def test_migrations_make_the_tables_the_code_knows(db: SqliteDatabase) -> None:
    def difference(tx: sa.Connection) -> list[object]:
        def compared(name: str | None, kind: str, _parents: object) -> bool:
            return kind != "table" or name is None or is_ours(name)

        options = {"compare_type": True, "include_name": compared}
        return list(compare_metadata(MigrationContext.configure(tx, opts=options), metadata))

    assert await db.read(difference) == []
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        wanted = definitions(connection)
    engine.dispose()
    assert await db.read(definitions) == wanted


async def test_every_table_is_strict_and_every_key_leads_to_a_tenant(db: SqliteDatabase) -> None:
    strict = await db.read(lambda tx: tx.exec_driver_sql("SELECT name FROM pragma_table_list WHERE strict").scalars().all())
    assert set(strict) == set(metadata.tables)
    assert all("tenant_id" in table.c for table in metadata.tables.values())


async def test_migrating_again_does_nothing_and_loads_no_alembic(db: SqliteDatabase, tmp_path: Path) -> None:
    await db.migrate()
    probe = (
        "import asyncio, sys, pathlib\n"
        "from antiphon.stores.sql.sqlite import SqliteDatabase\n"
        "db = SqliteDatabase(pathlib.Path(sys.argv[1]))\n"
        "async def main():\n"
        "    await db.open()\n"
        "    await db.close()\n"
        "asyncio.run(main())\n"
        "print('alembic' in sys.modules)\n"
    )
    command = [sys.executable, "-c", probe, str(tmp_path / "antiphon.db")]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


async def test_two_processes_may_migrate_at_once(tmp_path: Path) -> None:
    both = [SqliteDatabase(tmp_path / "new" / "antiphon.db") for _ in range(2)]
    await asyncio.gather(*(db.open() for db in both))
    assert await both[0].read(schema.version_of) == schema.versions()[-1]
    for db in both:
        await db.close()


async def test_the_database_refuses_to_move_a_message(db: SqliteDatabase, scene: Scene) -> None:
    owner = scene.owner()
    head, other = await scene.conversation(owner), await scene.conversation(owner)
    first, second = await scene.exchange(owner, head.id), await scene.exchange(owner, head.id)
    for change in (
        f"parent_id = '{second.message_id}' WHERE id = '{first.user_message_id}'",
        f"parent_id = NULL WHERE id = '{second.user_message_id}'",
        f"conversation_id = '{other.id}' WHERE id = '{first.user_message_id}'",
        f"id = 'msg_x' WHERE id = '{second.message_id}'",
    ):
        with pytest.raises(IntegrityError, match="never moves"):
            await db.write(lambda tx, change=change: tx.exec_driver_sql(f"UPDATE messages SET {change}"))
    assert (await scene.conversations.message(owner, first.user_message_id or MessageId(""))).parent_id is None


async def test_the_database_refuses_orphans(db: SqliteDatabase, scene: Scene) -> None:
    owner = scene.owner()
    head, other = await scene.conversation(owner), await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    row = "('tenant_t1', ?, 'msg_x', ?, 'user', 'complete', 0, '')"
    insert = "INSERT INTO messages (tenant_id, conversation_id, id, parent_id, role, status, created_at, content) VALUES " + row
    for conversation_id, parent_id in ((head.id, "msg_unknown"), (other.id, turn.message_id), ("conv_unknown", None), (head.id, "msg_x_")):
        with pytest.raises(IntegrityError):
            await db.write(lambda tx, values=(conversation_id, parent_id): tx.exec_driver_sql(insert, values))
    with pytest.raises(IntegrityError):
        await db.write(lambda tx: tx.exec_driver_sql("INSERT INTO tenants VALUES ('tenant_1', 'x', 'not a number', NULL)"))


async def test_an_end_leaves_one_outbox_row(db: SqliteDatabase, scene: Scene) -> None:
    owner = scene.owner()
    turn = await scene.exchange(owner, (await scene.conversation(owner)).id)
    outbox = await db.read(lambda tx: tx.exec_driver_sql("SELECT tenant_id, kind, dedup_key, sent_at, payload FROM outbox").all())
    assert [tuple(row) for row in outbox] == [
        ("tenant_t1", "usage", turn.generation_id, None, f'{{"generation_id":"{turn.generation_id}"}}')
    ]
