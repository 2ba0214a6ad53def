"""What every test has: a clock that moves when told, ids that count, and a detector for calls that block the event loop."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx

from antiphon.core.clock import ManualClock
from tests.ids import CountingIds


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """In CI nothing is skipped for want of a tool: a skip there is a failure."""
    if os.environ.get("CI") and call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception):
        try:
            raise AssertionError(f"skipped in CI: {call.excinfo.value}")
        except AssertionError:
            call.excinfo = pytest.ExceptionInfo.from_current()
