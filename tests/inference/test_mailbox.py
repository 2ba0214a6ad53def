from __future__ import annotations

import asyncio

import pytest

from antiphon.core.errors import EngineFailed
from antiphon.core.events import Queued
from antiphon.engines.base import Prefilling, Tokens
from antiphon.inference.mailbox import Mailbox


async def test_a_slow_reader_gets_everything_in_few_events() -> None:
    box = Mailbox()
    for position in (3, 2, 1):
        box.put(Queued(position, None))
    for done in (10, 20):
        box.put(Prefilling(done, 30))
    for token in range(4):
        box.put(Tokens((token,), str(token)))
    assert [await box.get() for _ in range(3)] == [Queued(1, None), Prefilling(20, 30), Tokens((0, 1, 2, 3), "0123")]


async def test_a_failure_comes_after_what_was_there() -> None:
    box = Mailbox()
    box.put(Tokens((1,), "a"))
    box.fail(EngineFailed("gone"))
    assert await box.get() == Tokens((1,), "a")
    with pytest.raises(EngineFailed, match="gone"):
        await box.get()


async def test_a_waiting_reader_wakes() -> None:
    box = Mailbox()
    reader = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.put(Queued(1, 5))
    assert await reader == Queued(1, 5)
