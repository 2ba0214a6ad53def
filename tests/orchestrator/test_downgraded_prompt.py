"""A smaller model with a smaller context: what it reads is trimmed to it, and a message it cannot hold stays with the model asked for."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.errors import HighDemand, PromptTooLong
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.core.ids import ConversationId
from antiphon.core.telemetry import NullTelemetry
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.prompt import MINIMUM_OUTPUT_TOKENS
from tests.orchestrator.conftest import CONTEXT_TOKENS, reference_pool
from tests.orchestrator.stage import Stage

SMALL = 256
LONG = TurnParams(max_tokens=100)


@pytest.fixture(scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    """``quick`` holds one long sequence, another may wait; then it falls back on ``slow``, whose context is a quarter of its own."""
    quick, slow = reference_pool("quick", 25.0, "ascii"), reference_pool("slow", 0.0, "ascii")
    quick = replace(
        quick, spec=replace(quick.spec, downgrade_to="slow", queue_limit=1), replica=replace(quick.replica, blocks=CONTEXT_TOKENS // 32)
    )
    slow = replace(slow, replica=replace(slow.replica, context_tokens=SMALL))
    with tempfile.TemporaryDirectory(prefix="down") as folder:
        gateway = Gateway([quick, slow], SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        try:
            await gateway.wait_ready(30)
            yield gateway
        finally:
            await gateway.close()


@asynccontextmanager
async def occupied(stage: Stage) -> AsyncIterator[None]:
    """The larger pool has no room for anybody else, and no place in its line."""
    holders = [await stage.send(await stage.conversation(), f"{number}" + "#" * 880, params=LONG) for number in range(2)]
    await stage.until_text(holders[0].generation_id)
    try:
        yield
    finally:
        for holder in reversed(holders):
            await stage.runner.cancel(stage.owner, holder.generation_id)
        async with asyncio.timeout(30):
            while stage.runner.running:
                await asyncio.sleep(0.01)


async def with_history(stage: Stage) -> ConversationId:
    conversation_id = await stage.conversation()
    for number in range(3):
        turn = await stage.send(conversation_id, f"{number} " + "#" * 180, params=TurnParams(max_tokens=8))
        assert (await stage.ended(turn.generation_id)).status is GenerationStatus.COMPLETE
    return conversation_id


async def test_a_conversation_too_long_for_the_smaller_model_is_trimmed_to_it(stage: Stage) -> None:
    conversation_id = await with_history(stage)
    async with occupied(stage):
        turn = await stage.send(conversation_id, "and now?", params=TurnParams(max_tokens=40))
        generation = await stage.ended(turn.generation_id)
    assert (generation.status, generation.pool, generation.route_rule) == (GenerationStatus.COMPLETE, "slow", "downgrade")
    assert generation.usage.prompt_tokens + generation.usage.output_tokens <= SMALL
    assert generation.usage.output_tokens == 40
    record = (await stage.message(turn.message_id)).prompt
    assert record is not None
    assert record.omitted > 0
    back = await stage.send(conversation_id, "and later?", params=TurnParams(max_tokens=8))
    assert (await stage.ended(back.generation_id)).status is GenerationStatus.COMPLETE


async def test_a_message_only_the_larger_model_can_hold_is_its_own(stage: Stage, gateway: Gateway) -> None:
    conversation_id = await with_history(stage)
    only_large = "#" * (2 * SMALL)
    async with occupied(stage):
        sticks = await stage.send(conversation_id, "and now?", params=TurnParams(max_tokens=8))
        assert (await stage.ended(sticks.generation_id)).pool == "slow"
        rows = len(stage.state.messages), len(stage.state.generations)
        downgraded = gateway.downgraded("quick")
        with pytest.raises(HighDemand):
            await stage.send(conversation_id, only_large, params=TurnParams(max_tokens=40))
        with pytest.raises(PromptTooLong) as refused:
            await stage.send(conversation_id, "#" * (2 * CONTEXT_TOKENS))
        assert refused.value.limit_tokens == CONTEXT_TOKENS - MINIMUM_OUTPUT_TOKENS
        assert (len(stage.state.messages), len(stage.state.generations)) == rows
        assert gateway.downgraded("quick") == downgraded, "what is taken back was no downgrade"
    turn = await stage.send(conversation_id, only_large, params=TurnParams(max_tokens=8))
    generation = await stage.ended(turn.generation_id)
    assert (generation.status, generation.pool, generation.route_rule) == (GenerationStatus.COMPLETE, "quick", "")
