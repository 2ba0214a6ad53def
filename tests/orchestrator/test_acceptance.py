from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from antiphon.core.errors import (
    Forbidden,
    HighDemand,
    IdempotencyMismatch,
    InvalidRequest,
    MessageTooLarge,
    ModelGone,
    NoCapacity,
    NotFound,
    ParentStreaming,
    PromptTooLong,
)
from antiphon.core.generation import TurnParams
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.inference.gateway import Gateway, Shed
from antiphon.orchestrator.acceptance import ContinueRequest
from antiphon.orchestrator.asking import MESSAGE_BYTES
from antiphon.orchestrator.prompt import MINIMUM_OUTPUT_TOKENS, SYSTEM_PROMPT
from antiphon.stores.generations.base import Accepted, IdempotencyKey
from antiphon.stores.generations.memory import MemoryGenerations
from tests.orchestrator.conftest import CONTEXT_TOKENS
from tests.orchestrator.stage import Stage


@pytest.fixture
def idle(gateway: Gateway) -> Stage:
    """Accepts turns and runs none."""
    return Stage(gateway, concurrency=0)


def rows(stage: Stage) -> tuple[int, ...]:
    state = stage.state
    return len(state.messages), len(state.generations), len(state.replays), len(state.outbox)


def question_of(stage: Stage, prompt_tokens: int) -> str:
    """A text whose whole prompt has so many tokens."""
    tokenizer = stage.ports.gateway.tokenizer("quick")
    empty = len(tokenizer.prompt([PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), PromptMessage(Role.USER, "")]))
    return "#" * (prompt_tokens - empty)


async def test_a_replay_answers_first_and_spends_nothing(idle: Stage) -> None:
    conversation_id = await idle.conversation()
    first = await idle.send(conversation_id, key="k")
    before = rows(idle)
    again = await idle.send(conversation_id, key="k")
    assert again == replace(first, replayed=True)
    assert rows(idle) == before
    idle.runner.refuse_new()
    assert (await idle.send(conversation_id, key="k")).replayed


async def test_fifty_equal_sends_make_one_turn(idle: Stage) -> None:
    conversation_id = await idle.conversation()
    turns = await asyncio.gather(*(idle.send(conversation_id, key="k", parent=None) for _ in range(50)))
    assert {turn.generation_id for turn in turns} == {turns[0].generation_id}
    assert sum(not turn.replayed for turn in turns) == 1
    assert rows(idle) == (2, 1, 1, 0)


class Late:
    """Generations whose first look-ups of a replay see nothing: an equal request is accepted just after them."""

    def __init__(self, driver: MemoryGenerations, blind: int) -> None:
        self._driver = driver
        self._blind = blind

    def __getattr__(self, name: str) -> object:
        return getattr(self._driver, name)

    async def find_replay(self, idempotency: IdempotencyKey, *, now: datetime) -> Accepted | None:
        if self._blind:
            self._blind -= 1
            return None
        return await self._driver.find_replay(idempotency, now=now)


async def test_an_equal_send_that_came_first_is_no_reason_to_refuse(gateway: Gateway) -> None:
    stage = Stage(gateway, concurrency=0)
    conversation_id = await stage.conversation()
    stage = Stage(gateway, state=stage.state, concurrency=0, ports={"generations": Late(stage.generations, blind=2)})
    first = await stage.send(conversation_id, key="k")
    assert await stage.send(conversation_id, key="k") == replace(first, replayed=True)


async def test_an_equal_continue_that_came_first_is_no_reason_to_refuse(gateway: Gateway) -> None:
    stage = Stage(gateway)
    accepted = await stage.send(await stage.conversation(), params=TurnParams(max_tokens=4))
    await stage.ended(accepted.generation_id)
    await stage.close()
    stage = Stage(gateway, state=stage.state, concurrency=0, ports={"generations": Late(stage.generations, blind=2)})
    again = ContinueRequest(accepted.message_id, TurnParams(), "k", "fingerprint")
    first = await stage.desk.continue_message(stage.principal, again)
    assert await stage.desk.continue_message(stage.principal, again) == replace(first, replayed=True)


async def test_a_key_is_not_for_another_body_or_conversation(idle: Stage) -> None:
    conversation_id = await idle.conversation()
    await idle.send(conversation_id, "one", key="k")
    for other, text in ((conversation_id, "two"), (await idle.conversation(), "one")):
        with pytest.raises(IdempotencyMismatch):
            await idle.send(other, text, key="k")


async def test_a_prompt_that_just_fits_is_accepted_and_one_token_more_is_not(idle: Stage) -> None:
    limit = CONTEXT_TOKENS - MINIMUM_OUTPUT_TOKENS
    conversation_id = await idle.conversation()
    accepted = await idle.send(conversation_id, question_of(idle, limit), parent=None)
    assert accepted.user_message_id is not None
    before = rows(idle)
    with pytest.raises(PromptTooLong) as refused:
        await idle.send(conversation_id, question_of(idle, limit + 1), parent=None)
    assert (refused.value.prompt_tokens, refused.value.limit_tokens) == (limit + 1, limit)
    assert rows(idle) == before


async def test_the_longest_prompt_is_answered(stage: Stage) -> None:
    text = question_of(stage, CONTEXT_TOKENS - MINIMUM_OUTPUT_TOKENS)
    accepted = await stage.send(await stage.conversation(), text, params=TurnParams(max_tokens=500))
    generation = await stage.ended(accepted.generation_id)
    assert (generation.usage.prompt_tokens, generation.usage.output_tokens) == (CONTEXT_TOKENS - MINIMUM_OUTPUT_TOKENS, 16)


async def test_earlier_turns_never_make_a_prompt_too_long(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    for number in range(8):
        accepted = await stage.send(conversation_id, f"{number} " + "#" * 150, params=TurnParams(max_tokens=60))
        usage = (await stage.ended(accepted.generation_id)).usage
        assert usage.prompt_tokens + usage.output_tokens <= CONTEXT_TOKENS
        assert usage.output_tokens == 60


@pytest.mark.parametrize(
    ("content", "params", "fault"),
    [
        ("", TurnParams(), "content"),
        (" \n\t", TurnParams(), "content"),
        ("hi", TurnParams(max_tokens=513), "params.max_tokens"),
        ("hi", TurnParams(max_tokens=0), "params.max_tokens"),
        ("hi", TurnParams(max_tokens=-1), "params.max_tokens"),
        (None, TurnParams(), "content"),
    ],
)
async def test_bad_requests_are_named_and_write_nothing(idle: Stage, content: str | None, params: TurnParams, fault: str) -> None:
    conversation_id = await idle.conversation()
    before = rows(idle)
    with pytest.raises(InvalidRequest) as refused:
        await idle.send(conversation_id, content, params=params)
    assert [found.path for found in refused.value.faults] == [fault]
    assert rows(idle) == before


async def test_what_cannot_be_accepted_writes_nothing(idle: Stage) -> None:
    conversation_id = await idle.conversation()
    asked = await idle.send(conversation_id)
    before = rows(idle)
    with pytest.raises(MessageTooLarge):
        await idle.send(conversation_id, "é" * (MESSAGE_BYTES // 2 + 1))
    with pytest.raises(ModelGone):
        await idle.send(conversation_id, model="gone")
    with pytest.raises(NotFound):
        await idle.send(ConversationId("conv_none"))
    with pytest.raises(NotFound):
        await idle.send(conversation_id, parent=MessageId("msg_none"))
    with pytest.raises(InvalidRequest):
        await idle.send(conversation_id, "under a question", parent=asked.user_message_id)
    with pytest.raises(ParentStreaming):
        await idle.send(conversation_id, parent=asked.message_id)
    with pytest.raises(ParentStreaming):
        await idle.desk.continue_message(idle.principal, ContinueRequest(asked.message_id, TurnParams(), None, ""))
    idle.principal = replace(idle.principal, plan="gone")
    with pytest.raises(Forbidden):
        await idle.send(conversation_id)
    assert rows(idle) == before


@pytest.mark.parametrize(("code", "error"), [("high_demand", HighDemand), ("no_capacity", NoCapacity)])
async def test_the_gateways_refusal_is_passed_on(gateway: Gateway, code: str, error: type[HighDemand | NoCapacity]) -> None:
    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(gateway, name)

        def accept(self, *_: object, **__: object) -> Shed:
            return Shed(code, 1234)  # type: ignore[arg-type]

    stage = Stage(gateway, concurrency=0, ports={"gateway": Full()})
    conversation_id = await stage.conversation()
    with pytest.raises(error) as refused:
        await stage.send(conversation_id)
    assert refused.value.retry_after_ms == 1234
    assert rows(stage) == (0, 0, 0, 0)


async def test_a_caller_that_goes_does_not_undo_its_turn(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    for turns in range(12):
        asking = asyncio.create_task(stage.send(conversation_id, parent=None))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait((asking,))
    async with asyncio.timeout(30):
        while await stage.generations.count_open() or stage.runner.running:
            await asyncio.sleep(0.01)
    assert len(stage.state.messages) == 2 * len(stage.state.generations) == 2 * len(stage.state.outbox)


async def test_continue_goes_on_from_the_exact_text(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    params = TurnParams(max_tokens=60)
    whole = await stage.send(conversation_id, "go", model="slow", params=params)
    undisturbed = (await stage.message((await stage.ended(whole.generation_id)).message_id)).content
    accepted = await stage.send(conversation_id, "go", parent=None, model="slow", params=TurnParams(max_tokens=400))
    await stage.until_text(accepted.generation_id, 30)
    await stage.runner.cancel(stage.owner, accepted.generation_id)
    stopped = (await stage.message(accepted.message_id)).content
    assert undisturbed.startswith(stopped) or stopped.startswith(undisturbed)

    again = await stage.desk.continue_message(stage.principal, ContinueRequest(accepted.message_id, params, "key", "f"))
    replay = await stage.desk.continue_message(stage.principal, ContinueRequest(accepted.message_id, params, "key", "f"))
    assert replay == replace(again, replayed=True)
    generation = await stage.ended(again.generation_id)
    text = (await stage.message(accepted.message_id)).content
    assert text.startswith(undisturbed)
    assert generation.usage.output_tokens == 60
    with pytest.raises(NotFound):
        await stage.desk.continue_message(stage.principal, ContinueRequest(MessageId("msg_none"), params, None, ""))
