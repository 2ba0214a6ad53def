"""A process killed in any phase of a migration, the copy before it included: the next start ends it, or begins it again."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.stores.sql import schema
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.stores.old_schema import LITTLE_ROOM, MESSAGES, migrate_with_little_room, old_database, version_in

# Dies at the Nth moment of those that can leave something behind: a statement, a commit, an act on files.
MIGRATE_AND_DIE = """
import asyncio, os, pathlib, signal, sys
import alembic.command, alembic.config
from sqlalchemy import Engine, event
from antiphon.stores.sql.sqlite import SqliteDatabase

count, last, folder = 0, int(sys.argv[2]), os.path.dirname(sys.argv[1])

def die(*_):
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)

def act(name, arguments):
    touching = name in ("open", "os.rename", "os.remove", "os.mkdir", "sqlite3.connect")
    if touching and str(arguments[0]).removeprefix("file://").startswith(folder):
        die()

async def migrate():
    await SqliteDatabase(pathlib.Path(sys.argv[1])).open()

event.listen(Engine, "before_cursor_execute", die)
event.listen(Engine, "commit", die)
sys.addaudithook(act)
asyncio.run(migrate())
print(count)
"""


def migrate_and_die(path: Path, phase: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MIGRATE_AND_DIE, str(path), str(phase)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


async def is_made_good(path: Path) -> None:
    db = SqliteDatabase(path)
    await db.open()
    await db.close()
    await asyncio.to_thread(holds_everything, path)


def holds_everything(path: Path) -> None:
    assert version_in(path) == schema.versions()[-1]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM search_docs").fetchone() == (MESSAGES + 1,)
        assert db.execute("SELECT count(*) FROM search_index WHERE search_index MATCH 'body : \"herons\"'").fetchone() == (MESSAGES,)
    backups = sorted((path.parent / "backups").iterdir())
    assert [file.name for file in backups] == ["antiphon-0001.db"]
    assert version_in(backups[0]) == "0001"


async def test_an_old_database_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    await asyncio.to_thread(old_database, path)
    await is_made_good(path)


@pytest.mark.parametrize("phase", [13, 16])
async def test_a_kill_while_the_copy_is_made(tmp_path: Path, phase: int) -> None:
    path = tmp_path / "antiphon.db"
    await asyncio.to_thread(old_database, path)
    ended = await asyncio.to_thread(migrate_and_die, path, phase)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert await asyncio.to_thread(version_in, path) == "0001"
    await is_made_good(path)


async def test_a_kill_between_two_pages_of_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    await asyncio.to_thread(old_database, path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE conversations SET title = hex(zeroblob(?))", (LITTLE_ROOM,))
    ended = await asyncio.to_thread(migrate_with_little_room, path, "SIG_DFL")
    assert ended.returncode == -signal.SIGXFSZ, ended.stderr
    staged = tmp_path / "backups" / ".antiphon-0001.db.part"
    assert 0 < staged.stat().st_size <= LITTLE_ROOM
    assert await asyncio.to_thread(version_in, path) == "0001"
    await is_made_good(path)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_kill_in_any_phase_is_made_good_by_the_next_start(tmp_path: Path) -> None:
    phase, killed = 0, 0
    while True:
        # Every moment up to the first statements of the migration itself; then each time a little further.
        phase += 1 if phase < 40 else phase // 10
        path = tmp_path / str(phase) / "antiphon.db"
        path.parent.mkdir()
        await asyncio.to_thread(old_database, path)
        ended = await asyncio.to_thread(migrate_and_die, path, phase)
        assert ended.returncode in {-signal.SIGKILL, 0}, ended.stderr
        await is_made_good(path)
        if ended.returncode == 0:
            break
        killed += 1
    assert killed > 40
