"""A database as the first schema left it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from antiphon.stores.sql import schema

TEXT = "an old question about herons"
MESSAGES = 50
LITTLE_ROOM = 60_000
# Files may not grow beyond this: the system refuses, or kills, in the middle of the copy.
_MIGRATE = f"""
import asyncio, pathlib, resource, signal, sys
from antiphon.core.errors import StoreUnavailable
from antiphon.stores.sql.sqlite import SqliteDatabase

async def migrate():
    try:
        await SqliteDatabase(pathlib.Path(sys.argv[1])).open()
    except StoreUnavailable:
        sys.exit(3)

signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[2]))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, ({LITTLE_ROOM}, {LITTLE_ROOM}))
asyncio.run(migrate())
"""


def migrate_with_little_room(path: Path, on_excess: str) -> subprocess.CompletedProcess[str]:
    """Migrate in a process that is refused (``SIG_IGN``) or killed (``SIG_DFL``) at ``LITTLE_ROOM`` bytes of a file; 3 for a refusal."""
    return subprocess.run([sys.executable, "-c", _MIGRATE, str(path), on_excess], capture_output=True, check=False, text=True)


def old_database(path: Path, version: str = "0001") -> None:
    """A database of that schema, with a conversation of ``MESSAGES`` messages in it; ``path`` does not exist yet."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    engine.dispose()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        columns = "(tenant_id, id, user_id, title, version, pinned, archived, temporary, created_at, updated_at)"
        db.execute(f"INSERT INTO conversations {columns} VALUES ('t', 'c', 'u', 'birds', 1, 0, 0, 0, 1, 1)")
        columns = "(tenant_id, conversation_id, id, role, status, created_at, content)"
        row = f"INSERT INTO messages {columns} VALUES ('t', 'c', ?, 'user', 'complete', 1, ?)"
        db.executemany(row, [(f"m{number}", f"{TEXT} {number}") for number in range(MESSAGES)])


def version_in(path: Path) -> str:
    """The schema of a whole database that holds all messages."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (MESSAGES,)
        return str(db.execute("SELECT version_num FROM alembic_version").fetchone()[0])
