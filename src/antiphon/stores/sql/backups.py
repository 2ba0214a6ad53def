"""Copies of an SQLite database, made before its schema changes, and what they must forget afterwards.

A copy appears whole or not at all: it is made under another name, read back, synced, and then renamed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from errno import ENOSPC
from pathlib import Path

import sqlalchemy as sa
import structlog
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from antiphon.core.errors import Conflict, DiskFull, NotFound, StoreUnavailable
from antiphon.stores.sql import schema, search
from antiphon.stores.sql.base import Gone

KEPT = 2
KEPT_FOR = timedelta(days=7)
_STAGED = ".part"
_SPARE_BYTES = 16 * 1024 * 1024
_TIDY_PAGES = 500

_log = structlog.get_logger(__name__)


class Backups:
    """The folder ``backups`` beside a database: the last ``KEPT`` copies, none older than ``KEPT_FOR``. Blocking."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.folder = database.with_name("backups")

    def files(self) -> tuple[Path, ...]:
        """Whole copies, oldest first."""
        found = ((file.stat().st_mtime_ns, file) for file in self.folder.glob("*.db"))
        return tuple(file for _, file in sorted(found))

    def make(self, version: str) -> Path:
        """Copy the database, whose schema is ``version``; nobody may write to it meanwhile. Takes the place of a copy of that schema.

        Raises ``DiskFull``, or ``StoreUnavailable`` for a database that is damaged; then there is no new copy and no file of one.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._drop_staged()
        whole = self.folder / f"{self._database.stem}-{version}.db"
        staged = whole.with_name(f".{whole.name}{_STAGED}")
        self._check_room()
        try:
            _copy(self._database, staged)
            _sync(staged)
        except (sqlite3.Error, OSError) as failure:
            self._drop_staged()
            if _is_full(failure):
                raise self._no_room() from failure
            raise
        except StoreUnavailable:
            self._drop_staged()
            raise
        staged.replace(whole)
        _sync(self.folder)
        for file in self.files()[:-KEPT]:
            file.unlink()
        return whole

    def forget(self, gone: Sequence[Gone]) -> None:
        """Leave no text of these conversations in any copy. A copy that cannot be cleaned is removed: it would keep what must go."""
        self._drop_staged()
        for file in self.files():
            made = file.stat()
            try:
                _clean(file, gone)
                os.utime(file, ns=(made.st_atime_ns, made.st_mtime_ns))
            except (SQLAlchemyError, sqlite3.Error) as failure:
                _log.warning("backup_removed", file=file.name, reason=type(failure).__name__)
                _remove(file)

    def expire(self, *, now: datetime) -> None:
        """Remove copies older than ``KEPT_FOR``."""
        oldest = (now - KEPT_FOR).timestamp()
        for file in self.files():
            if file.stat().st_mtime < oldest:
                _log.info("backup_expired", file=file.name)
                _remove(file)

    def _check_room(self) -> None:
        if shutil.disk_usage(self.folder).free < self._wanted_bytes():
            raise self._no_room()

    def _wanted_bytes(self) -> int:
        log = self._database.with_name(f"{self._database.name}-wal")
        return self._database.stat().st_size + (log.stat().st_size if log.exists() else 0) + _SPARE_BYTES

    def _no_room(self) -> DiskFull:
        wanted, free = self._wanted_bytes() >> 20, shutil.disk_usage(self.folder).free >> 20
        return DiskFull(
            f"The disk is full: a migration first copies the database to {self.folder}, which takes {wanted} MiB; {free} MiB are free. "
            "Nothing was changed."
        )

    def _drop_staged(self) -> None:
        for left in self.folder.glob(f".*{_STAGED}*"):
            left.unlink(missing_ok=True)


def copy_to(database: Path, file: Path) -> None:
    """Copy the database as it is at one moment into the new ``file``, while others may write to it. Blocking.

    The copy appears whole, checked and synced, readable by its owner alone, or not at all. Raises ``Conflict`` where ``file`` is there
    already, ``NotFound`` where there is no database, ``DiskFull``, ``StoreUnavailable``.
    """
    if not database.is_file():
        raise NotFound(f"There is no database {database}.")
    if file.exists():
        raise Conflict(f"{file} is there already; a backup takes nothing's place.")
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}", suffix=_STAGED)
    os.close(descriptor)
    staged = Path(name)
    try:
        _copy(database, staged)
        _sync(staged)
        staged.rename(file)
        _sync(file.parent)
    except (sqlite3.Error, OSError) as failure:
        if _is_full(failure):
            raise DiskFull(f"The disk is full: {database.name} was not copied to {file}.") from failure
        raise StoreUnavailable(f"{database.name} could not be copied to {file}: {failure}.") from failure
    finally:
        staged.unlink(missing_ok=True)


def put_back(file: Path, database: Path) -> Path | None:
    """Put the backup ``file`` in the place of the database, which nobody has open; where what was there is kept, if anything was.

    Blocking. Ended at any moment, it leaves the old database or the restored one. Raises ``NotFound``, ``DiskFull``, ``StoreUnavailable``
    for a file that is damaged or no backup.
    """
    if not file.is_file():
        raise NotFound(f"There is no backup {file}.")
    staged = database.with_name(f".{database.name}{_STAGED}")
    staged.unlink(missing_ok=True)
    try:
        _copy(file, staged)
        _check_ours(staged, file)
        kept = Backups(database).make("replaced") if database.is_file() else None
        _fold(database)
        _sync(staged)
        staged.replace(database)
        _sync(database.parent)
        return kept
    except (sqlite3.Error, OSError) as failure:
        if _is_full(failure):
            raise DiskFull(f"The disk is full: {file} was not put back, and nothing was changed.") from failure
        raise StoreUnavailable(f"{file} is damaged or no backup: {failure}.") from failure
    finally:
        staged.unlink(missing_ok=True)


def _copy(database: Path, staged: Path) -> None:
    source = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    with closing(source), closing(sqlite3.connect(staged)) as copy:
        copy.execute("PRAGMA synchronous = OFF").close()
        source.backup(copy)
        # One file, without a log beside it.
        copy.execute("PRAGMA journal_mode = DELETE").close()
        told = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if told != "ok":
            raise StoreUnavailable(f"The database is damaged ({told}); it was left as it is.")


def _check_ours(staged: Path, file: Path) -> None:
    """A schema that no version knows, or a newer one, is not put back."""
    with closing(sqlite3.connect(staged)) as copy:
        found = copy.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('alembic_version', 'conversations', 'users')").fetchone()
        if found[0] != 3:
            raise StoreUnavailable(f"{file} is no backup of Antiphon's.")
        version = copy.execute("SELECT version_num FROM alembic_version").fetchone()
    if version is None or version[0] not in schema.versions():
        raise StoreUnavailable(f"{file} was made by a newer Antiphon than this one.")


def _fold(database: Path) -> None:
    """Leave no write-ahead log that a database put in this one's place would take for its own."""
    if database.is_file():
        with closing(sqlite3.connect(database)) as old:
            old.execute("PRAGMA journal_mode = DELETE").close()


def _clean(file: Path, gone: Sequence[Gone]) -> None:
    """Delete the rows of ``gone`` whatever the schema; freed pages are overwritten, and the index is merged until they have left it."""
    engine = sa.create_engine(URL.create("sqlite", database=str(file)), poolclass=NullPool)
    event.listen(engine, "connect", _overwrite_freed)
    with engine.begin() as tx:
        tables = sa.inspect(tx).get_table_names()
        holding = [name for name in tables if any(column["name"] == "conversation_id" for column in sa.inspect(tx).get_columns(name))]
        searchable = "search_docs" in tables
        for owner, conversation_id in gone:
            named = {"tenant_id": owner.tenant_id, "id": conversation_id}
            if searchable:
                search.drop_conversation(tx, owner, conversation_id)
            for name in holding:
                tx.execute(sa.text(f'DELETE FROM "{name}" WHERE tenant_id = :tenant_id AND conversation_id = :id'), named)  # noqa: S608
            tx.execute(sa.text("DELETE FROM conversations WHERE tenant_id = :tenant_id AND id = :id"), named)
        pages = -_TIDY_PAGES
        while searchable and search.tidy(tx, pages):
            pages = _TIDY_PAGES


def _overwrite_freed(driver: sqlite3.Connection, _record: object) -> None:
    driver.execute("PRAGMA secure_delete = ON").close()


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.with_name(f"{file.name}-journal").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_full(failure: BaseException) -> bool:
    if isinstance(failure, OSError):
        return failure.errno == ENOSPC
    return getattr(failure, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
