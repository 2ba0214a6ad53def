"""A database with the current schema, for tests of what is particular to SQL."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.core.clock import ManualClock
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.contracts.scene import Scene, make_migrated_file, sql_scene
from tests.ids import CountingIds


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_migrated_file(tmp_path_factory.mktemp("schema"))


@pytest.fixture
async def db(tmp_path: Path, migrated_file: Path) -> AsyncIterator[SqliteDatabase]:
    db = SqliteDatabase(Path(shutil.copy(migrated_file, tmp_path)), busy_ms=50)
    await db.open()
    yield db
    await db.close()


@pytest.fixture
def scene(db: SqliteDatabase, clock: ManualClock, ids: CountingIds) -> Scene:
    return sql_scene(db, clock, ids)
