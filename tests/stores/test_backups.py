"""Copies of a database before its schema changes: whole, few, and clean of what was purged since."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import ConfigErrors, DiskFull, StoreUnavailable
from antiphon.core.ids import ConversationId, TenantId, UserId
from antiphon.orchestrator.upkeep import Upkeep
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.sql import schema
from antiphon.stores.sql.backups import KEPT_FOR, Backups
from antiphon.stores.sql.base import Gone
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.contracts.scene import Scene
from tests.stores.old_schema import LITTLE_ROOM, TEXT, migrate_with_little_room, old_database, version_in
from tests.stores.test_traces import CANARY, plant, traces

GONE = Gone(Owner(TenantId("t"), UserId("u")), ConversationId("c"))


async def migrated(path: Path) -> Path | None:
    """Migrate and close; the backup that was made."""
    db = SqliteDatabase(path)
    try:
        return (await db.migrate()).backup
    finally:
        await db.close()


def left_in(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "backups").iterdir())


def test_the_copy_is_one_whole_file_of_the_old_schema(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    backup = asyncio.run(migrated(path))
    assert backup == tmp_path / "backups" / "antiphon-0001.db"
    assert left_in(tmp_path) == ["antiphon-0001.db"]
    assert version_in(backup) == "0001"
    assert version_in(path) == schema.versions()[-1]
    assert (tmp_path / "backups").stat().st_mode & 0o077 == 0
    assert asyncio.run(migrated(path)) is None


def test_a_copy_can_take_the_place_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    backup = asyncio.run(migrated(path))
    assert backup is not None
    shutil.copy(backup, path)
    assert version_in(path) == "0001"
    assert asyncio.run(migrated(path)) == backup
    assert version_in(path) == schema.versions()[-1]


def test_a_new_database_is_not_copied(tmp_path: Path) -> None:
    assert asyncio.run(migrated(tmp_path / "antiphon.db")) is None
    assert not (tmp_path / "backups").exists()


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    backups = Backups(path)
    for number, version in enumerate(("0003", "0001", "0002")):
        os.utime(backups.make(version), (number, number))
    backups.make("0002")
    assert left_in(tmp_path) == ["antiphon-0001.db", "antiphon-0002.db"]


def test_no_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    size = path.stat().st_size
    os.truncate(path, shutil.disk_usage(tmp_path).free + 2**30)  # a hole behind the last page
    with pytest.raises(DiskFull, match=r"The disk is full: a migration first copies the database to .* Nothing was changed"):
        asyncio.run(migrated(path))
    assert left_in(tmp_path) == []
    os.truncate(path, size)
    assert version_in(path) == "0001"
    assert asyncio.run(migrated(path)) is not None


def test_a_copy_refused_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE conversations SET title = hex(zeroblob(?))", (LITTLE_ROOM,))
    ended = migrate_with_little_room(path, "SIG_IGN")
    assert ended.returncode == 3, ended.stderr
    assert left_in(tmp_path) == []
    assert version_in(path) == "0001"
    assert asyncio.run(migrated(path)) is not None


def test_a_damaged_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'feedback'").fetchone()[0]
        page = db.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * page)
        file.write(b"\x7f" * page)
    damaged = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="damaged"):
        asyncio.run(migrated(path))
    assert left_in(tmp_path) == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
    assert path.read_bytes()[page:] == damaged[page:]


def test_a_newer_schema_is_refused_and_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ConfigErrors, match="schema 9999"):
        asyncio.run(migrated(path))
    assert not (tmp_path / "backups").exists()


@pytest.mark.parametrize("version", ["0001", "0003"])
def test_a_copy_forgets_what_is_purged_and_keeps_the_rest(tmp_path: Path, version: str) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path, version)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO conversations SELECT tenant_id, 'kept', 'u', 'kept' " + rest_of(db, "conversations", 4) + " LIMIT 1")
    backups = Backups(path)
    copy = backups.make(version)
    made = copy.stat().st_mtime_ns
    assert TEXT.encode() in copy.read_bytes()
    backups.forget([GONE])
    assert copy.stat().st_mtime_ns == made
    content = copy.read_bytes()
    assert TEXT.encode() not in content
    assert b"birds" not in content
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT title FROM conversations").fetchall() == [("kept",)]


def rest_of(db: sqlite3.Connection, table: str, known: int) -> str:
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")][known:]
    return f", {', '.join(names)} FROM {table}"


def test_a_copy_that_cannot_be_cleaned_goes(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    backups = Backups(path)
    copy = backups.make("0001")
    copy.write_bytes(b"not a database" * 1000)
    backups.forget([GONE])
    assert left_in(tmp_path) == []


def test_copies_are_removed_when_they_are_old(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    old_database(path)
    backups = Backups(path)
    backups.make("0001")
    now = datetime.now(UTC)
    backups.expire(now=now + KEPT_FOR - timedelta(minutes=1))
    assert left_in(tmp_path) == ["antiphon-0001.db"]
    backups.expire(now=now + KEPT_FOR + timedelta(minutes=1))
    assert left_in(tmp_path) == []


async def test_a_purge_leaves_no_trace_in_a_backup(db: SqliteDatabase, scene: Scene, clock: ManualClock, tmp_path: Path) -> None:
    owner, log = scene.owner(), MemoryLog(clock, 900)
    kept = await scene.conversation(owner, title="kept")
    await scene.exchange(owner, kept.id, "an honest question")
    await plant(scene, log, owner)
    path = next(tmp_path.glob("*.db"))
    backup = await asyncio.to_thread(Backups(path).make, schema.versions()[-1])
    assert backup.name in await asyncio.to_thread(traces, tmp_path)
    clock.advance(3601)
    os.utime(backup, (clock.now().timestamp(),) * 2)
    assert await Upkeep(scene.custody, log, clock, purge_seconds=3600).once() == 1
    assert await asyncio.to_thread(traces, tmp_path) == []
    copied = SqliteDatabase(Path(shutil.move(backup, tmp_path / f"{CANARY}.db")))
    await copied.open()
    there = SqlConversations(copied)
    assert (await there.search(owner, "honest", limit=5, after=None)).hits
    assert (await there.search(owner, CANARY, limit=5, after=None)).hits == ()
    await copied.close()
