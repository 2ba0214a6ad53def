from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from antiphon.app.system import SystemClock
from antiphon.core.errors import NotFound, StoreUnavailable
from antiphon.orchestrator import pace
from antiphon.orchestrator.pace import Grid, persist


async def test_all_waiters_of_a_grid_wake_together() -> None:
    """Those that came before an instant are woken by it, in one go: nothing else runs between them, and none waits for the next."""
    grid, woken, turns = Grid(SystemClock(), 0.05), list[int](), 0

    async def wait(pauses: int) -> None:
        for _ in range(pauses):
            await asyncio.sleep(0)
        await grid.tick()
        woken.append(turns)

    await grid.tick()
    waiters = [asyncio.create_task(wait(pauses)) for pauses in (0, 1, 2)]
    while not woken:
        await asyncio.sleep(0)
        turns += 1
    await asyncio.gather(*waiters)
    assert max(woken) - min(woken) <= 1


async def test_a_waiter_that_goes_takes_nobody_with_it() -> None:
    grid = Grid(SystemClock(), 0.03)
    gone, stays = asyncio.create_task(grid.tick()), asyncio.create_task(grid.tick())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(stays, 30)


async def test_persist_waits_out_an_outage_and_believes_an_answer() -> None:
    failures: list[Exception] = [StoreUnavailable(), OSError()]

    async def act() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert await persist(act, what="test") == "done"

    async def refuse() -> str:
        failures.append(NotFound())
        raise failures[-1]

    with pytest.raises(NotFound):
        await persist(refuse, what="test", forever=True)
    assert len(failures) == 1


async def test_a_fault_that_stays_is_told_once_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(pace, "_LONGEST_PAUSE_S", 0.002)
    failures: list[Exception] = [*(ValueError() for _ in range(20)), *(StoreUnavailable() for _ in range(20))]

    async def act() -> str:
        if failures:
            raise failures.pop()
        return "done"

    with capture_logs() as told:
        assert await persist(act, what="test", forever=True, whatever=True) == "done"
    failed = [event for event in told if event["event"] == "write_failed" and event["what"] == "test"]
    assert [(event["error"], event["exc_info"]) for event in failed] == [("StoreUnavailable", False), ("ValueError", True)]


async def test_patience_with_outages_is_none_with_faults_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_FIRST_PAUSE_S", 0.001)

    async def act() -> None:
        raise ValueError

    with pytest.raises(ValueError, match="^$"):
        await persist(act, what="test", forever=True)
