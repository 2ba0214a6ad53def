"""Copying the write-ahead log into the database, on a thread of its own: no write waits for these syncs."""

from __future__ import annotations

import contextlib
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

_COMMITS = 64
# Copying beside a writer that never rests does not reach the end of the log, and the log would grow; at this length the writer
# copies the little that is left itself, and the log begins anew.
LONGEST_LOG_PAGES = 16_000


class Checkpoints:
    """Belongs to one writer's thread, which calls ``after_commit``."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-checkpoint")
        self._commits = 0
        self._running: Future[None] | None = None

    def after_commit(self) -> None:
        """Begin to copy when there is enough, and nothing is being copied."""
        self._commits += 1
        if self._commits >= _COMMITS and (self._running is None or self._running.done()):
            self._commits = 0
            self._running = self._thread.submit(self._copy)

    def close(self) -> None:
        """Wait for what is being copied; blocking."""
        self._thread.shutdown(wait=True)

    def _copy(self) -> None:
        # Whatever refuses this refuses the next write as well, which tells its caller.
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self._database, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
