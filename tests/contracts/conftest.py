"""Every contract runs against every driver of its port."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.core.clock import ManualClock
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.contracts.scene import Scene, make_migrated_file, memory_scene, sql_scene
from tests.ids import CountingIds

LOG_SECONDS = 900
QUICK_ON_POSTGRES = ("test_conversations", "test_generations", "test_transfers")
"""What `make test` runs on PostgreSQL too; the others' turn there is in `make test-all`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        drivers = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        if "postgres" in drivers and item.path.stem not in QUICK_ON_POSTGRES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the current schema, to copy."""
    return make_migrated_file(tmp_path_factory.mktemp("schema"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, clock: ManualClock, ids: CountingIds) -> Scene:
    if request.param == "memory":
        return memory_scene(MemoryState(), clock, ids)
    return sql_scene(request.getfixturevalue(request.param), clock, ids)


@pytest.fixture
async def sqlite(tmp_path: Path, migrated_file: Path) -> AsyncIterator[SqliteDatabase]:
    db = SqliteDatabase(Path(shutil.copy(migrated_file, tmp_path)))
    await db.open()
    yield db
    await db.close()


@pytest.fixture(params=["memory", "journal"])
async def log(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[GenerationLog]:
    if request.param == "memory":
        opened: GenerationLog = MemoryLog(clock, LOG_SECONDS)
    else:
        opened = await JournalLog.open_folder(tmp_path / "log", clock, LOG_SECONDS)
    yield opened
    await opened.close()
