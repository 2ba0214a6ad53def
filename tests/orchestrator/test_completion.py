from __future__ import annotations

import asyncio

import pytest

from antiphon.core.errors import Draining, InvalidRequest, ModelGone, PromptTooLong
from antiphon.core.generation import TurnParams
from antiphon.core.messages import Role
from antiphon.engines.base import Finished, PromptMessage, Tokens
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.completion import CompletionRequest
from tests.awake import until
from tests.orchestrator.conftest import CONTEXT_TOKENS
from tests.orchestrator.stage import Stage

HELLO = (PromptMessage(Role.USER, "hello"),)


async def test_it_streams_and_counts_and_stores_nothing(stage: Stage) -> None:
    opened = await stage.completions.open(stage.principal, CompletionRequest(HELLO, "reference-quick", TurnParams(max_tokens=20)))
    async with opened as stream:
        events = [event async for event in stream]
    assert isinstance(events[-1], Finished)
    assert sum(len(event.token_ids) for event in events if isinstance(event, Tokens)) == stream.usage.output_tokens == 20
    assert (stream.pool, stream.model) == ("quick", "reference-quick")
    assert stream.generation_id.startswith("gen_")
    assert not stage.state.generations
    assert stage.telemetry.counts["antiphon_generations_total", "quick", "free", "complete"] == 1


async def test_the_engine_stops_when_the_reader_goes(stage: Stage, gateway: Gateway) -> None:
    opened = await stage.completions.open(stage.principal, CompletionRequest(HELLO, "slow", TurnParams(max_tokens=500)))
    async with opened as stream:
        async for event in stream:
            if isinstance(event, Tokens):
                break
    await until(lambda: not gateway.replicas("slow")[0].running, within_s=1, what="the engine stops")
    assert stage.telemetry.counts["antiphon_generations_total", "slow", "free", "cancelled"] == 1
    assert 0 < stream.usage.output_tokens < 500


async def test_the_engine_stops_when_the_reader_is_cancelled(stage: Stage, gateway: Gateway) -> None:
    async def read() -> None:
        async with await stage.completions.open(stage.principal, CompletionRequest(HELLO, "slow", TurnParams(max_tokens=500))) as stream:
            async for _ in stream:
                pass

    reading = asyncio.create_task(read())
    await until(lambda: gateway.replicas("slow")[0].running)
    reading.cancel()
    await asyncio.wait((reading,))
    await until(lambda: not gateway.replicas("slow")[0].running, within_s=1, what="the engine stops")


async def test_refusals(stage: Stage) -> None:
    async def ask(messages: tuple[PromptMessage, ...] = HELLO, model: str | None = None, max_tokens: int | None = None) -> None:
        await stage.completions.open(stage.principal, CompletionRequest(messages, model, TurnParams(max_tokens=max_tokens)))

    with pytest.raises(InvalidRequest):
        await ask(messages=())
    with pytest.raises(InvalidRequest):
        await ask(max_tokens=513)
    with pytest.raises(ModelGone):
        await ask(model="gone")
    with pytest.raises(PromptTooLong):
        await ask(messages=(PromptMessage(Role.USER, "#" * CONTEXT_TOKENS),))
    stage.runner.refuse_new()
    with pytest.raises(Draining):
        await ask()
