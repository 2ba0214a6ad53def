"""What is told of a generation until its text begins."""

from __future__ import annotations

import asyncio

from antiphon.core.events import Queued
from antiphon.orchestrator.live import LiveFeed, LiveState


async def test_who_reads_hears_that_where_it_stands_is_no_news_any_more() -> None:
    feed = LiveFeed()
    heard: list[LiveState | None] = []

    async def read() -> None:
        heard.extend([state async for state in feed.states()])

    reading = asyncio.create_task(read())
    for event in (Queued(2, 900), Queued(1, 400)):
        feed.publish(event)
        await asyncio.sleep(0)
    feed.settle()
    feed.publish(Queued(1, 100))
    feed.end()
    await reading
    assert [state and state.event for state in heard] == [Queued(2, 900), Queued(1, 400), None]


async def test_who_comes_when_text_has_begun_hears_nothing() -> None:
    feed = LiveFeed()
    feed.publish(Queued(1, 400))
    feed.settle()
    feed.end()
    assert [state async for state in feed.states()] == []
