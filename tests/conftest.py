"""What every test has: a clock that moves when told, ids that count, and a detector for calls that block the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from antiphon.core.clock import ManualClock
from antiphon.stores.sql.postgres import PostgresDatabase
from tests.ids import CountingIds
from tests.postgres_server import Emptier, PostgresServer

# What an example costs in time is the machine's affair, and no property of the code: a second of standing still would fail any of them.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def blocking_calls_fail(request: pytest.FixtureRequest) -> Iterator[None]:
    """In async tests, a blocking call below a frame of ours raises ``BlockingError``; the test's own calls may block."""
    if "anyio_backend" not in request.fixturenames:
        yield
        return
    with blockbuster_ctx("antiphon"):
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ids() -> CountingIds:
    return CountingIds()


@pytest.fixture
def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run; who stops a server starts one of his own."""
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kept_postgres(postgres_server: PostgresServer) -> Iterator[tuple[PostgresDatabase, Emptier]]:
    """A database with the current schema, opened once: a connection costs more than most tests do."""
    url = postgres_server.create_database("kept")
    database = PostgresDatabase(url)
    with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
        thread.submit(lambda: asyncio.run(database.open())).result()
        emptier = Emptier(url)
        yield database, emptier
        emptier.close()
        thread.submit(lambda: asyncio.run(database.close())).result()


@pytest.fixture
def postgres(kept_postgres: tuple[PostgresDatabase, Emptier]) -> Iterator[PostgresDatabase]:
    """An open database with the current schema and no rows; it stays open."""
    database, emptier = kept_postgres
    yield database
    emptier.empty()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """In CI nothing is skipped for want of a tool: a skip there is a failure."""
    if os.environ.get("CI") and call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception):
        try:
            raise AssertionError(f"skipped in CI: {call.excinfo.value}")
        except AssertionError:
            call.excinfo = pytest.ExceptionInfo.from_current()
