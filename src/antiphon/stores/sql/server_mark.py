"""The mark of the one server that works on a PostgreSQL database: a session's advisory lock, gone with the process or its connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    import psycopg

_log = structlog.get_logger(__name__)

_LOCK = 0x616E7469_73657276
_TRIES = 30
_PAUSE_S = 0.1
"""A server that was killed a moment ago is still being noticed."""
_SETTINGS = (
    "SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false), "
    "set_config('tcp_keepalives_count', '2', false), set_config('application_name', 'antiphon server', false)"
)


class ServerMark:
    """``connect`` opens a connection of the mark's own. Blocking, and for any thread."""

    def __init__(self, connect: Callable[[], psycopg.Connection]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether this process has the mark now. Raises ``psycopg.OperationalError``."""
        with self._lock:
            self._connection = self._opened()
            pause = threading.Event()
            for _ in range(_TRIES):
                if self._try(self._connection):
                    return True
                pause.wait(_PAUSE_S)
            return False

    def renew(self) -> None:
        """Take the mark again where the database lost it, being restarted; nothing where it was never taken. Raises nothing."""
        import psycopg

        with self._lock:
            if self._connection is None:
                return
            try:
                self._connection.execute("SELECT 1")
            except psycopg.Error:
                try:
                    self._connection = self._opened()
                    if not self._try(self._connection):
                        _log.warning("database_in_use", detail="another server has taken this database")
                except psycopg.Error as failure:
                    _log.warning("server_mark_lost", reason=type(failure).__name__)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> psycopg.Connection:
        if self._connection is not None:
            self._connection.close()
        connection = self._connect()
        connection.autocommit = True
        connection.execute(_SETTINGS)
        return connection

    @staticmethod
    def _try(connection: psycopg.Connection) -> bool:
        row = connection.execute(f"SELECT pg_try_advisory_lock({_LOCK})".encode()).fetchone()
        return row is not None and bool(row[0])
