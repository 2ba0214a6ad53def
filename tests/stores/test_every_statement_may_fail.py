"""Fail the Nth statement of every method of every port, for every N: the rows are as before until the method succeeds whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from antiphon.core.clock import ManualClock
from antiphon.core.errors import StoreUnavailable
from antiphon.stores.sql.database import SqlDatabase
from antiphon.stores.sql.postgres import PostgresDatabase
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.sql.tables import metadata
from antiphon.stores.transfers.sql import SqlTransfers
from tests.contracts.scene import Scene, sql_scene
from tests.ids import CountingIds
from tests.stores.acts import LEAVES_ROWS_ALONE, PORTS, READS, Act, acts_of, methods_of

_MOST_STATEMENTS = 60


@contextmanager
def failing_at(number: int) -> Iterator[None]:
    """The ``number``-th statement, counted from 1, is refused; ``BEGIN`` and ``COMMIT`` are two of them."""
    count = 0

    def refuse(*_: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise StoreUnavailable

    for moment in ("before_cursor_execute", "commit"):
        event.listen(sa.Engine, moment, refuse)
    try:
        yield
    finally:
        for moment in ("before_cursor_execute", "commit"):
            event.remove(sa.Engine, moment, refuse)


async def contents(db: SqlDatabase, name: str) -> dict[str, list[tuple[object, ...]]]:
    """All rows, and all bytes of the index unless ``name`` is the method that rewrites them step by step."""
    index = "search_index_data" if isinstance(db, SqliteDatabase) else "search_index"
    tables = [*metadata.tables, *([] if name == "Custody.scrub" else [index])]

    def dump(tx: sa.Connection) -> dict[str, list[tuple[object, ...]]]:
        return {table: sorted((tuple(row) for row in tx.exec_driver_sql(f'SELECT * FROM "{table}"')), key=repr) for table in tables}

    return await db.read(dump)


async def check(db: SqlDatabase, name: str, act: Act) -> None:
    before = await contents(db, name)
    for number in range(1, _MOST_STATEMENTS):
        with failing_at(number):
            try:
                await act()
            except StoreUnavailable:
                pass
            else:
                break
        assert await contents(db, name) == before, f"{name} left something behind when its statement {number} failed"
    else:
        pytest.fail(f"{name} has more statements than this test expects")
    if name not in LEAVES_ROWS_ALONE:
        least = 3 if isinstance(db, SqliteDatabase) else 2  # psycopg begins by itself
        assert number > least, f"{name}: BEGIN, a statement and COMMIT at least"
    assert (await contents(db, name) == before) is (name.partition(",")[0] in READS | LEAVES_ROWS_ALONE), name


@pytest.mark.parametrize("port", PORTS)
async def test_a_method_happens_whole_or_not_at_all(db: SqliteDatabase, scene: Scene, port: type) -> None:
    acts = await acts_of(scene, SqlTransfers(db), port)
    assert {name.partition(",")[0] for name in acts} == methods_of(port)
    for name, act in acts.items():
        await check(db, name, act)


@pytest.mark.slow
@pytest.mark.parametrize("port", PORTS)
async def test_nor_by_halves_on_postgresql(postgres: PostgresDatabase, clock: ManualClock, ids: CountingIds, port: type) -> None:
    for name, act in (await acts_of(sql_scene(postgres, clock, ids), SqlTransfers(postgres), port)).items():
        await check(postgres, name, act)
