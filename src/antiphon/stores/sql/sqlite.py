"""One SQLite file: one writer, a few readers, pragmas and locks, and errors in Antiphon's words."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.stores.sql import schema
from antiphon.stores.sql.backups import Backups
from antiphon.stores.sql.base import Gone
from antiphon.stores.sql.checkpoints import LONGEST_LOG_PAGES, Checkpoints
from antiphon.stores.sql.database import Migration, SqlDatabase
from antiphon.stores.sql.prepared import open_direct

T = TypeVar("T")

_READERS = 4
_WAL_RETRY_MS = 5
_WRITER = ("PRAGMA secure_delete = ON", f"PRAGMA wal_autocheckpoint = {LONGEST_LOG_PAGES}")


@dataclass(frozen=True, slots=True)
class _Engines:
    writer: sa.Engine
    reader: sa.Engine


class SqliteDatabase(SqlDatabase):
    """One file. ``busy_ms`` is how long a write waits for another process that writes (a command beside a running server).

    A new or older schema is migrated after a copy of the file is safe; closed, the file is complete without its ``-wal``.
    """

    def __init__(self, path: Path, *, busy_ms: int = 5000) -> None:
        super().__init__(writers=1, readers=_READERS)
        self._path = path
        self._busy_ms = busy_ms
        self._backups = Backups(path)
        self._checkpoints = Checkpoints(path)
        self._engines: _Engines | None = None

    async def fold(self) -> None:
        """Fold the write-ahead log into the file and empty it; waits for readers, and gives way to them after ``busy_ms``."""
        await self._run(self._write_threads, self._fold)

    async def forget(self, gone: Sequence[Gone]) -> None:
        """Leave no text of these conversations in copies of the database, before they leave the database itself."""
        await self._run(self._read_threads, lambda: self._backups.forget(gone))

    async def expire_copies(self, *, now: datetime) -> None:
        """Remove copies of the database that are older than they may be."""
        await self._run(self._read_threads, lambda: self._backups.expire(now=now))

    def _write(self, fn: Callable[[sa.Connection], T], /, *, durable: bool) -> T:
        with _translated(), self._opened().writer.connect() as connection:
            _set_synchronous(connection, "FULL" if durable else "NORMAL")
            with connection.begin():
                open_direct(connection)
                outcome = fn(connection)
            self._checkpoints.after_commit()
            return outcome

    def _read(self, fn: Callable[[sa.Connection], T], /, *, durable: bool) -> T:  # noqa: ARG002
        with _translated(), self._opened().reader.connect() as connection, connection.begin():
            open_direct(connection)
            return fn(connection)

    def _fold(self) -> None:
        with _translated(), self._opened().writer.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def _migrate(self) -> Migration:
        with _translated():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._engines is None:
                self._engines = _Engines(
                    writer=self._engine(1, begin="BEGIN IMMEDIATE", pragmas=_WRITER),
                    reader=self._engine(_READERS, begin="BEGIN", pragmas=("PRAGMA query_only = ON",)),
                )
            newest = schema.versions()[-1]
            with self._engines.reader.connect() as connection, connection.begin():
                if schema.is_current(connection):
                    return Migration(newest, newest)
            with self._engines.writer.connect() as connection:
                _set_synchronous(connection, "FULL")
                # Nobody writes from here to the commit, so the copy is what the migration begins with.
                with connection.begin():
                    before = schema.version_of(connection)
                    backup = None if before in {None, newest} else self._backups.make(str(before))
                    schema.upgrade(connection)
            return Migration(before, newest, backup)

    def _outdated(self) -> bool:
        if not self._path.exists():
            return False
        engine = sa.create_engine(URL.create("sqlite", database=str(self._path)), poolclass=NullPool)
        with _translated(), engine.connect() as connection:
            return schema.version_of(connection) is not None and not schema.is_current(connection)

    def _dispose(self) -> None:
        self._checkpoints.close()
        if self._engines is not None:
            # The last connection to close folds the write-ahead log into the file.
            self._engines.reader.dispose()
            self._engines.writer.dispose()

    def _opened(self) -> _Engines:
        if self._engines is None:
            raise StoreUnavailable("The store is not open.")
        return self._engines

    def _engine(self, connections: int, *, begin: str, pragmas: tuple[str, ...]) -> sa.Engine:
        engine = sa.create_engine(
            URL.create("sqlite", database=str(self._path)),
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            connect_args={"timeout": self._busy_ms / 1000, "check_same_thread": False},
        )

        def on_connect(driver: sqlite3.Connection, _record: object) -> None:
            # The module's own transactions begin late and deferred, and cannot be immediate; ours begin in ``on_begin``.
            driver.isolation_level = None
            _enter_wal(driver, busy_ms=self._busy_ms)
            for pragma in ("PRAGMA foreign_keys = ON", *pragmas):
                driver.execute(pragma).close()

        def on_begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(begin)

        event.listen(engine, "connect", on_connect)
        event.listen(engine, "begin", on_begin)
        return engine


def _set_synchronous(connection: sa.Connection, level: str) -> None:
    """Set how hard commits sync. Only outside a transaction, hence past SQLAlchemy, which would begin one."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.execute(f"PRAGMA synchronous = {level}").close()


def _enter_wal(driver: sqlite3.Connection, *, busy_ms: int) -> None:
    """Switch the file to its write-ahead log. SQLite waits for no lock here, so two that make one file at once would collide."""
    pause = threading.Event()
    for left in range(busy_ms // _WAL_RETRY_MS, -1, -1):
        try:
            driver.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or left == 0:
                raise
            pause.wait(_WAL_RETRY_MS / 1000)
        else:
            return


@contextmanager
def _translated() -> Iterator[None]:
    """SQLite's refusals as ``DiskFull`` or ``StoreUnavailable``; a broken constraint is a fault of ours and stays as it is."""
    try:
        yield
    except DBAPIError as error:
        refusal = _refusal(error.orig)
        if refusal is None:
            raise
        raise refusal from error
    except sqlite3.Error as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        raise refusal from error
    except OSError as error:
        raise StoreUnavailable from error


_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def _refusal(error: BaseException | None) -> DiskFull | StoreUnavailable | None:
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return DiskFull()
    return StoreUnavailable() if primary in _UNAVAILABLE else None
