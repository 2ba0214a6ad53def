"""A process killed in any phase of a migration: the next start ends it, or begins it again, with every row there."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from antiphon.stores.sql import schema
from antiphon.stores.sql.database import SqliteDatabase

MIGRATE_AND_DIE = """
import asyncio, os, pathlib, signal, sys
import sqlalchemy as sa
from sqlalchemy import event
from antiphon.stores.sql.database import SqliteDatabase

count, last = 0, int(sys.argv[2])

def die(*_):
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)

event.listen(sa.Engine, "before_cursor_execute", die)
event.listen(sa.Engine, "commit", die)
asyncio.run(SqliteDatabase(pathlib.Path(sys.argv[1])).open())
"""
TEXT = "an old question about herons"


def first_schema(path: Path) -> None:
    """A database as the first schema left it, with a conversation in it."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    engine.dispose()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO conversations VALUES ('t', 'c', 'u', 'birds', NULL, NULL, 1, 0, 0, 0, 1, 1, NULL)")
        columns = "(tenant_id, conversation_id, id, role, status, created_at, content)"
        row = f"INSERT INTO messages {columns} VALUES ('t', 'c', ?, 'user', 'complete', 1, ?)"
        db.executemany(row, [(f"m{number}", f"{TEXT} {number}") for number in range(50)])


def holds_everything(path: Path) -> None:
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT version_num FROM alembic_version").fetchone() == (schema.versions()[-1],)
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (50,)
        assert db.execute("SELECT count(*) FROM search_docs").fetchone() == (51,)
        assert db.execute("SELECT count(*) FROM search_index WHERE search_index MATCH 'body : \"herons\"'").fetchone() == (50,)


async def test_an_old_database_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    await asyncio.to_thread(first_schema, path)
    db = SqliteDatabase(path)
    await db.open()
    await db.close()
    await asyncio.to_thread(holds_everything, path)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [1, 2, 3, 5, 9, 13, 18, 25, 40, 60, 90, 130, 180, 230, 10_000])
async def test_a_kill_in_any_phase_is_made_good_by_the_next_start(tmp_path: Path, phase: int) -> None:
    path = tmp_path / "antiphon.db"
    await asyncio.to_thread(first_schema, path)
    process = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", MIGRATE_AND_DIE, str(path), str(phase)], capture_output=True, check=False
    )
    assert process.returncode in {-signal.SIGKILL, 0}, process.stderr
    db = SqliteDatabase(path)
    await db.open()
    await db.close()
    await asyncio.to_thread(holds_everything, path)
