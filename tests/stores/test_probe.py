"""Whether the store takes writes, asked by writing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from antiphon.core.clock import ManualClock
from antiphon.core.errors import DiskFull
from antiphon.stores.sql.probe import WriteProbe
from antiphon.stores.sql.sqlite import SqliteDatabase

T = TypeVar("T")


class FullDisk:
    """A database that can be made to refuse."""

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self.full = False
        self.writes = 0

    async def write(self, fn: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        self.writes += 1
        if self.full:
            raise DiskFull
        return await self._db.write(fn, durable=durable)

    async def read(self, fn: Callable[[sa.Connection], T]) -> T:
        return await self._db.read(fn)

    async def fold(self) -> None:
        await self._db.fold()


async def test_it_follows_the_store_there_and_back(db: SqliteDatabase, clock: ManualClock) -> None:
    disk = FullDisk(db)
    probe = WriteProbe(disk, clock, every_s=2)
    assert await probe()
    disk.full = True
    clock.advance(1.9)
    assert await probe()
    clock.advance(0.1)
    await asyncio.gather(*(probe() for _ in range(10)))
    assert not await probe()
    assert disk.writes == 2
    disk.full = False
    clock.advance(2)
    assert await probe()


async def test_it_really_writes(db: SqliteDatabase, clock: ManualClock) -> None:
    def data_version(tx: sa.Connection) -> int:
        return int(tx.exec_driver_sql("PRAGMA data_version").scalar_one())

    before = await db.read(data_version)
    assert await WriteProbe(db, clock)()
    assert await db.read(data_version) != before
