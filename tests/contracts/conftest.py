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
from antiphon.stores.sql.database import SqliteDatabase
from tests.contracts.scene import Scene, make_migrated_file, memory_scene, sql_scene
from tests.ids import CountingIds

LOG_SECONDS = 900


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the current schema, to copy."""
    return make_migrated_file(tmp_path_factory.mktemp("schema"))


@pytest.fixture(params=["memory", "sqlite"])
async def scene(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path, clock: ManualClock, ids: CountingIds
) -> AsyncIterator[Scene]:
    if request.param == "memory":
        state = MemoryState()
        yield memory_scene(state, clock, ids)
        return
    db = SqliteDatabase(Path(shutil.copy(migrated_file, tmp_path)))
    await db.open()
    yield sql_scene(db, clock, ids)
    await db.close()


@pytest.fixture(params=["memory", "journal"])
async def log(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[GenerationLog]:
    if request.param == "memory":
        opened: GenerationLog = MemoryLog(clock, LOG_SECONDS)
    else:
        opened = await JournalLog.open_folder(tmp_path / "log", clock, LOG_SECONDS)
    yield opened
    await opened.close()
