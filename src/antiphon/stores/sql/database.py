"""One async face of every SQL database: functions of a connection run on threads of ours, never on the event loop.

A task that is cancelled leaves its function to the thread that runs it, which ends the transaction and gives the connection back
whatever happens: cancellation reaches no connection. The drivers below say what a transaction is on their database.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from antiphon.core.errors import StoreUnavailable
from antiphon.stores.sql.base import Gone
from antiphon.stores.sql.transaction_queue import GROUP_LIMIT, TransactionQueue

T = TypeVar("T")

_MAX_WAITING = 4096
"""Writes, and as many reads; each is a request that somebody waits for."""


@dataclass(frozen=True, slots=True)
class Migration:
    """From which schema to which; ``before`` is ``None`` for a new database. ``backup`` holds an older one as it was."""

    before: str | None
    after: str
    backup: Path | None = None


class SqlDatabase(ABC):
    """Runs at most ``writers`` writing and ``readers`` reading transactions at once, a connection each; the others wait in order.

    ``write_group``: so many writes that wait may share a transaction.
    """

    def __init__(self, *, writers: int, readers: int, write_group: int = GROUP_LIMIT) -> None:
        self._write_threads = ThreadPoolExecutor(writers, thread_name_prefix="store-write")
        self._read_threads = ThreadPoolExecutor(readers, thread_name_prefix="store-read")
        self._writes = TransactionQueue(self._write_threads, self._write, workers=writers, limit=write_group)
        self._reads = TransactionQueue(self._read_threads, self._read, workers=readers)
        self._waiting_writes = 0
        self._waiting_reads = 0
        self._closed = False

    async def open(self) -> None:
        """Make the database if there is none and bring its schema up to date; before any other call.

        Raises ``ConfigErrors`` for a schema that only a newer Antiphon knows.
        """
        await self.migrate()

    async def migrate(self) -> Migration:
        """Run the numbered migrations that this database has not seen; quick when there are none.

        Ended at any moment, it leaves the old schema or the new one. Raises ``ConfigErrors`` as ``open`` does, ``DiskFull``,
        ``StoreUnavailable``.
        """
        return await self._run(self._write_threads, self._migrate)

    async def outdated(self) -> bool:
        """Whether there is a database, and its schema is an older one; changes nothing. Raises ``ConfigErrors`` for a newer one."""
        return await self._run(self._read_threads, self._outdated)

    async def close(self) -> None:
        """Let running calls end, then give all connections back."""
        self._closed = True
        self._read_threads.shutdown(wait=False)
        self._write_threads.shutdown(wait=False)
        await asyncio.get_running_loop().run_in_executor(None, self._end)

    async def write(self, fn: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        """Run ``fn`` whole or not at all; on stable storage on return when ``durable``.

        Another writer may run beside it, whose writes are not seen. Two that write or lock (``FOR UPDATE``) the same row, or put in the
        same key, come out as if one had run after the other; who decides by rows that he does neither to calls ``base.stand_alone``.

        ``fn`` may run again after a run that was rolled back, so it changes nothing but the database. A caller that is cancelled
        leaves it whole: it runs to its end, or has not begun and never will.
        Raises ``DiskFull`` or ``StoreUnavailable``, with nothing of ``fn`` kept unless the database was lost while it committed;
        whatever ``fn`` raises rolls back too.
        """
        if self._waiting_writes >= _MAX_WAITING:
            raise StoreUnavailable("Too many writes are waiting.", retry_after_ms=1000)
        self._waiting_writes += 1
        try:
            return await self._writes.put(fn, durable=durable)
        except RuntimeError as error:
            if self._closed:
                raise StoreUnavailable("The store is closed.") from error
            raise
        finally:
            self._waiting_writes -= 1

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        """Run ``fn`` on one snapshot, not older than the call; readers and writers do not wait for each other.

        Reads that wait together share a snapshot, and ``fn`` may run twice. Raises ``StoreUnavailable``, and whatever ``fn`` raises.
        """
        if self._waiting_reads >= _MAX_WAITING:
            raise StoreUnavailable("Too many reads are waiting.", retry_after_ms=1000)
        self._waiting_reads += 1
        try:
            return await self._reads.put(fn)
        except RuntimeError as error:
            if self._closed:
                raise StoreUnavailable("The store is closed.") from error
            raise
        finally:
            self._waiting_reads -= 1

    @abstractmethod
    async def fold(self) -> None:
        """Leave no copy of overwritten rows beside the database, as far as readers allow."""

    @abstractmethod
    async def forget(self, gone: Sequence[Gone]) -> None:
        """Leave no text of these conversations in copies of the database, before they leave the database itself."""

    @abstractmethod
    async def expire_copies(self, *, now: datetime) -> None:
        """Remove copies of the database that are older than they may be."""

    @abstractmethod
    def _write(self, fn: Callable[[sa.Connection], T], /, *, durable: bool) -> T:
        """Run ``fn`` in a writing transaction; blocking."""

    @abstractmethod
    def _read(self, fn: Callable[[sa.Connection], T], /, *, durable: bool) -> T:
        """Run ``fn`` in a transaction that cannot write; blocking."""

    @abstractmethod
    def _migrate(self) -> Migration:
        """As ``migrate``; blocking."""

    @abstractmethod
    def _outdated(self) -> bool:
        """As ``outdated``; blocking."""

    @abstractmethod
    def _dispose(self) -> None:
        """Close the connections; no call runs any more. Blocking."""

    async def _run(self, threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(threads, call)
        except RuntimeError as error:
            raise StoreUnavailable("The store is closed.") from error
        return await running

    def _end(self) -> None:
        self._read_threads.shutdown(wait=True)
        self._write_threads.shutdown(wait=True)
        self._dispose()
