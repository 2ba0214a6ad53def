"""Completions and errands are on the books while they are computed, and on the bill when their server has died."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from antiphon.core.errors import StoreUnavailable
from antiphon.core.generation import TurnParams
from antiphon.core.messages import Role
from antiphon.core.usage import UsageRecord, usage_record
from antiphon.engines.base import PromptMessage, Tokens
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.completion import CompletionRequest, CompletionStream
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.memory import MemoryState
from tests.orchestrator.stage import Failing, Stage

NOW = timedelta(seconds=-60)
HELLO = (PromptMessage(Role.USER, "hello"),)


async def opened(stage: Stage, tokens: int = 500, model: str = "slow") -> CompletionStream:
    return await stage.completions.open(stage.principal, CompletionRequest(HELLO, model, TurnParams(max_tokens=tokens)))


def billed(stage: Stage) -> list[UsageRecord]:
    return [usage_record(row.payload) for row in stage.state.outbox]


async def read(stream: CompletionStream, tokens: int) -> int:
    """So many at least; how many."""
    found = 0
    async for event in stream:
        if isinstance(event, Tokens):
            found += len(event.token_ids)
        if found >= tokens:
            break
    return found


async def test_a_completion_is_on_the_books_from_its_first_token_until_its_end(stage: Stage) -> None:
    async with await opened(stage) as stream:
        assert not stage.state.open_usage
        await read(stream, 1)
        async with asyncio.timeout(30):
            while not stage.state.open_usage:
                await asyncio.sleep(0.001)
        ((_, first),) = stage.state.open_usage.values()
        assert (first.generation_id, first.estimated, first.finish_reason) == (stream.generation_id, True, None)
        assert first.usage.prompt_tokens > 0
        more = await read(stream, 5)
        await stage.ports.books.keep()
        ((_, second),) = stage.state.open_usage.values()
        assert second.usage.output_tokens >= first.usage.output_tokens + more
    assert not stage.state.open_usage
    (record,) = billed(stage)
    assert record.usage.output_tokens >= second.usage.output_tokens
    assert await stage.ports.books.close_left(unkept_for=NOW) == 0


async def test_what_a_dead_server_left_is_billed_once_as_far_as_it_was_kept(stage: Stage, gateway: Gateway) -> None:
    stream = await opened(stage)
    await stream.__aenter__()
    told = await read(stream, 8)
    await stage.ports.books.keep()
    after = Stage(gateway, state=stage.state)  # the next server, on the same store
    try:
        assert await after.ports.books.close_left(unkept_for=timedelta(seconds=60)) == 0, "it may be alive"
        assert await after.ports.books.close_left(unkept_for=NOW) == 1
        assert await after.ports.books.close_left(unkept_for=NOW) == 0
        (record,) = billed(after)
        assert (record.usage.output_tokens, record.estimated, record.finish_reason) == (told, True, None)
        assert record.user_id == stage.principal.user_id
        # The server was only slow: what it says at last is not billed besides.
        await stream.__aexit__(None, None, None)
        assert billed(after) == [record]
        assert not after.state.open_usage
    finally:
        await after.close()


async def test_an_outage_of_the_store_disturbs_no_completion(gateway: Gateway) -> None:
    state = MemoryState()
    stage = Stage(gateway, state=state)
    failing = Failing(MemoryGenerations(state, stage.clock), 1, StoreUnavailable(), after=False, times=3)
    stage = Stage(gateway, state=state, ports={"generations": failing})
    async with await opened(stage, 12, "quick") as stream:
        assert await read(stream, 12) == 12
    (record,) = billed(stage)
    assert record.usage.output_tokens == 12
    assert failing.reached
    await stage.close()


async def test_what_waits_for_the_store_to_be_closed_is_not_taken_for_left(gateway: Gateway) -> None:
    state = MemoryState()
    stage = Stage(gateway, state=state)
    away = asyncio.Event()

    class Away(MemoryGenerations):
        async def add_usage(self, *args: Any, **named: Any) -> None:
            if not away.is_set():
                raise StoreUnavailable
            await super().add_usage(*args, **named)

    stage = Stage(gateway, state=state, ports={"generations": Away(state, stage.clock)})
    books = stage.ports.books

    async def ask() -> None:
        async with await opened(stage, 12, "quick") as stream:
            await read(stream, 12)

    asking = asyncio.create_task(ask())
    async with asyncio.timeout(30):
        while not (state.open_usage and next(iter(state.open_usage.values()))[1].usage.output_tokens == 12):
            await books.keep()
            await asyncio.sleep(0.01)
    ((before, _),) = state.open_usage.values()
    await asyncio.sleep(0.01)
    await books.keep()
    ((after, record),) = state.open_usage.values()
    assert after > before
    assert await books.close_left(unkept_for=timedelta(seconds=5)) == 0
    away.set()
    await asking
    assert [(one.generation_id, one.estimated) for one in billed(stage)] == [(record.generation_id, False)]
    assert not state.open_usage
    await stage.close()


async def test_the_books_are_kept_in_rounds_through_outages(gateway: Gateway) -> None:
    state = MemoryState()
    stage = Stage(gateway, state=state)
    failing = Failing(MemoryGenerations(state, stage.clock), 1, StoreUnavailable(), after=False, times=4)
    stage = Stage(gateway, state=state, ports={"generations": failing})
    rounds = asyncio.create_task(stage.ports.books.run_for_ever())
    try:
        async with await opened(stage) as stream:
            async with asyncio.timeout(30):
                while not state.open_usage:
                    await read(stream, 1)
            before = [record.usage.output_tokens for _, record in state.open_usage.values()]
            await read(stream, 10)
            async with asyncio.timeout(30):
                while [record.usage.output_tokens for _, record in state.open_usage.values()] == before:
                    await asyncio.sleep(0.01)
            assert not billed(stage), "nobody else closes what is kept"
    finally:
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        await stage.close()
