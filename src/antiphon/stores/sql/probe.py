"""Whether a database takes writes now: asked by writing."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.stores.sql.base import Database

_log = structlog.get_logger(__name__)

_PATIENCE_S = 5.0


class WriteProbe:
    """Call it as often as you like: a write is tried every ``every_s`` at most, and one at a time."""

    def __init__(self, database: Database, clock: Clock, *, every_s: float = 2.0) -> None:
        self._database = database
        self._clock = clock
        self._every_s = every_s
        self._tried_at: float | None = None
        self._takes_writes = True

    async def __call__(self) -> bool:
        """Whether the last write tried was taken. Raises nothing."""
        now = self._clock.monotonic()
        if self._tried_at is None or now - self._tried_at >= self._every_s:
            self._tried_at = now
            self._told(refusal=await self._try())
        return self._takes_writes

    async def _try(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._database.write(_touch, durable=False)
        except (DiskFull, StoreUnavailable) as error:
            return error.code
        except TimeoutError:
            return "timeout"
        return None

    def _told(self, *, refusal: str | None) -> None:
        takes_writes = refusal is None
        if takes_writes != self._takes_writes:
            _log.warning("store_refuses_writes" if refusal else "store_takes_writes", code=refusal)
        self._takes_writes = takes_writes


_TOUCH = {"sqlite": "PRAGMA user_version = 0", "postgresql": "SELECT pg_logical_emit_message(true, 'antiphon', '')"}
"""Writes that change nothing, yet need a page on the disk: a number of the file's own, a message in the server's log."""


def _touch(tx: sa.Connection) -> None:
    tx.exec_driver_sql(_TOUCH[tx.dialect.name]).close()
