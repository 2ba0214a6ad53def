"""A PostgreSQL database: snapshots, writes that run again when they collide, and errors in Antiphon's words.

What the server refuses because two writes collided has left nothing, and runs again; once it failed it waits for the others of this process
that failed, so that a crowd on one row gets through one by one. So does what finds a key there that was not there when it looked. A
connection lost before COMMIT was sent has left nothing either. One lost while committing may have left everything: that is for the
caller, who knows whether asking again is harmless.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import QueuePool

from antiphon.core.errors import AntiphonError, ConfigErrors, DiskFull, StoreUnavailable
from antiphon.stores.sql import schema
from antiphon.stores.sql.base import Gone
from antiphon.stores.sql.database import Migration, SqlDatabase
from antiphon.stores.sql.server_mark import ServerMark

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_WRITERS = 8
_READERS = 8
_TRIES = 12
_LOOKS = 3
"""After so many tries a key that is there is believed to have been there."""
_PATIENCE_S = 20.0
"""So long a call waits in all: for those before it, for its connection and for its statements."""
_MIGRATION_LOCK = 0x616E7469_70686F6E
_CONNECT = {
    "application_name": "antiphon",
    "connect_timeout": "5",
    # A server that is gone without a word is given up after so long.
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    # Of several hosts the one that takes writes; a replica that fell behind is no store.
    "target_session_attrs": "read-write",
}
_SETTINGS = (
    "SELECT set_config('statement_timeout', '15s', false), set_config('lock_timeout', '10s', false), "
    "set_config('idle_in_transaction_session_timeout', '60s', false)"
)
_RETRY_AFTER_MS = 2000


class _Again(Exception):
    """Nothing was kept, and the same may work now."""


class PostgresDatabase(SqlDatabase):
    """``url`` as libpq takes it: ``postgresql://user:password@host:port/name?sslmode=…``. Commands may work on it beside a server."""

    def __init__(self, url: str) -> None:
        super().__init__(writers=_WRITERS, readers=_READERS, write_group=1)
        connect = connector(url)
        self._mark = ServerMark(connect)
        self._writer = _engine(connect, _WRITERS)
        self._reader = _engine(connect, _READERS, read_only=True)
        self._losers_turn = threading.Lock()

        def on_connect(_driver: object, _record: object) -> None:
            self._mark.renew()

        event.listen(self._writer, "connect", on_connect)

    async def hold(self) -> None:
        """Be the one server that works on this database, until ``close``. Raises ``ConfigErrors`` where another does."""

        def take() -> bool:
            with told_at_start():
                return self._mark.take()

        if not await self._run(self._write_threads, take):
            raise ConfigErrors([("store.url", "another server works on this database; one at a time may")])

    async def write(self, fn: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        """As ``SqlDatabase.write``; a write given up after ``_PATIENCE_S`` may still happen, whole."""
        with _patience():
            async with asyncio.timeout(_PATIENCE_S):
                return await super().write(fn, durable=durable)

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        with _patience():
            async with asyncio.timeout(_PATIENCE_S):
                return await super().read(fn)

    async def fold(self) -> None:
        """Does nothing: the server's vacuum and its write-ahead log follow their own time."""

    async def forget(self, gone: Sequence[Gone]) -> None:
        """Does nothing: copies of this database are made, and end, where the server is kept."""

    async def expire_copies(self, *, now: datetime) -> None:
        """Does nothing; see ``forget``."""

    def _write(self, fn: Callable[[sa.Connection], T], /, *, durable: bool) -> T:
        for attempt in range(_TRIES):
            with self._losers_turn if attempt else nullcontext():
                try:
                    return _transact(self._writer, fn, durable=durable, attempt=attempt)
                except _Again:
                    continue
        raise StoreUnavailable("Too many change the same at once.", retry_after_ms=_RETRY_AFTER_MS)

    def _read(self, fn: Callable[[sa.Connection], T], /, *, durable: bool) -> T:  # noqa: ARG002
        try:
            return _transact(self._reader, fn, durable=True, attempt=0)
        except _Again:
            return _transact(self._reader, fn, durable=True, attempt=_LOOKS)

    def _migrate(self) -> Migration:
        newest = schema.versions()[-1]
        with told_at_start(), self._writer.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            with connection.begin():
                if schema.is_current(connection):
                    return Migration(newest, newest)
            with connection.begin():
                connection.exec_driver_sql("SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
                _check_encoding(connection)
                before = schema.version_of(connection)
                schema.upgrade(connection)
            return Migration(before, newest)

    def _outdated(self) -> bool:
        with told_at_start(), self._reader.connect() as connection:
            return schema.version_of(connection) is not None and not schema.is_current(connection)

    def _dispose(self) -> None:
        self._mark.close()
        self._reader.dispose()
        self._writer.dispose()


def connections_wanted() -> int:
    """What one server opens at most."""
    return _WRITERS + _READERS + 1


def connector(url: str) -> Callable[[], psycopg.Connection]:
    """What opens connections to ``url``, which libpq itself reads. Raises ``ConfigErrors``."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError as missing:
        raise ConfigErrors([("store.url", "PostgreSQL needs the extra: pip install 'antiphon[postgres]'")]) from missing
    try:
        parts = {**_CONNECT, **conninfo_to_dict(url)}
    except psycopg.ProgrammingError as fault:
        raise ConfigErrors([("store.url", f"is no address of a PostgreSQL database: {fault}")]) from fault
    return lambda: psycopg.connect(**parts)  # pyright: ignore[reportArgumentType] - all are texts


def _engine(connect: Callable[[], psycopg.Connection], connections: int, *, read_only: bool = False) -> sa.Engine:
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        isolation_level="REPEATABLE READ",
        use_native_hstore=False,
    )

    def on_connect(driver: psycopg.Connection, _record: object) -> None:
        driver.execute(_SETTINGS)
        driver.commit()
        driver.read_only = read_only

    event.listen(engine, "connect", on_connect)
    return engine


def _transact(engine: sa.Engine, fn: Callable[[sa.Connection], T], *, durable: bool, attempt: int) -> T:
    """``fn`` in one transaction. Raises ``_Again`` where nothing was kept and the same may work now."""
    committing = False
    try:
        with engine.connect() as connection, connection.begin():
            if not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            outcome = fn(connection)
            committing = True
        return outcome
    except DBAPIError as error:
        broken = isinstance(error, IntegrityError)
        if _collided(error) or (broken and attempt < _LOOKS) or (attempt == 0 and not committing and _is_lost(error)):
            raise _Again from error
        refusal = _refusal(error)
        if broken or refusal is None:
            raise
        raise refusal from error
    except NoConnection as error:
        raise StoreUnavailable(retry_after_ms=_RETRY_AFTER_MS) from error
    except AntiphonError as error:
        # What ``fn`` made of a broken constraint.
        if attempt < _LOOKS and isinstance(error.__cause__, IntegrityError):
            raise _Again from error
        raise


def _sqlstate(error: DBAPIError) -> str:
    """Five characters, empty where the server did not answer."""
    return getattr(error.orig, "sqlstate", None) or ""


def _collided(error: DBAPIError) -> bool:
    """Serialization failure, deadlock."""
    return _sqlstate(error) in {"40001", "40P01"}


def _is_lost(error: DBAPIError) -> bool:
    """Whether a connection that was there is gone: the server was restarted, or shuts down."""
    return error.connection_invalidated or _sqlstate(error) in {"57P01", "57P02", "57P05"}


_UNAVAILABLE_CLASSES = ("08", "25", "28", "3D", "53", "55", "57", "58", "F0", "XX")
"""Connections, read-only servers, passwords, no such database, resources, locks, operators and time-outs, files, damage.

https://www.postgresql.org/docs/current/errcodes-appendix.html
"""


def _refusal(error: DBAPIError) -> DiskFull | StoreUnavailable | None:
    state = _sqlstate(error)
    if state == "53100":
        return DiskFull()
    if error.connection_invalidated or not state or state.startswith(_UNAVAILABLE_CLASSES) or state == "42501":
        return StoreUnavailable(retry_after_ms=_RETRY_AFTER_MS)
    return None


@contextmanager
def _patience() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise StoreUnavailable(retry_after_ms=_RETRY_AFTER_MS) from error


@contextmanager
def told_at_start() -> Iterator[None]:
    """As ``_refusal``, in the server's own words: whoever starts or migrates may read them."""
    try:
        yield
    except DBAPIError as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        raise type(refusal)(_said(error.orig)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psycopg":
            raise
        raise StoreUnavailable(_said(error)) from error


def _said(error: BaseException | None) -> str:
    return f"PostgreSQL: {' '.join(str(error).split())}"


def _check_encoding(connection: sa.Connection) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise ConfigErrors([("store.url", f"the database must be encoded in UTF8, not {encoding}")])
