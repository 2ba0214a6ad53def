"""Work after an answer: done when there is time, never in the way, gone with its conversation."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.errors import EngineFailed
from antiphon.core.events import Title
from antiphon.core.generation import FinishReason, GenerationStatus, TurnParams
from antiphon.core.ids import MessageId
from antiphon.core.messages import Message, MessageStatus, Role, Snippet, TitleSource
from antiphon.core.telemetry import NullTelemetry
from antiphon.core.tenancy import Band
from antiphon.core.usage import Purpose, UsageRecord, usage_record
from antiphon.engines.base import EngineEvent, EngineRequest, EngineUsage, Finished, Tokens
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator import errand
from antiphon.orchestrator.background import Background, BackgroundSettings
from antiphon.orchestrator.relevance import Room
from antiphon.orchestrator.summary import summary_request
from antiphon.stores.conversations.base import ConversationPatch
from tests.orchestrator.conftest import CONTEXT_TOKENS, reference_pool
from tests.orchestrator.stage import Stage

ANSWER = TurnParams(max_tokens=30)
LONG = "of some length " * 5
BY_MODEL = BackgroundSettings(summaries="model")


class Says:
    """A real gateway whose requests of the lowest band are answered with ``text``: a model's whims cannot be had on demand."""

    def __init__(self, gateway: Gateway, text: str | Exception, *, after_s: float = 0.0) -> None:
        self._gateway = gateway
        self._text = text
        self._after_s = after_s
        self.requests: list[EngineRequest] = []
        self.closed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._gateway, name)

    async def stream(self, pool: str, request: EngineRequest, **terms: Any) -> AsyncIterator[EngineEvent]:
        if request.band is not Band.BATCH:
            async for event in self._gateway.stream(pool, request, **terms):
                yield event
            return
        self.requests.append(request)
        try:
            await asyncio.sleep(self._after_s)
            if isinstance(self._text, Exception):
                raise self._text
            yield Tokens((1,), self._text)
            yield Finished(FinishReason.STOP, EngineUsage(1, 0, 1, 0, 0, 0, 0))
        finally:
            self.closed += 1


class Halts:
    """The real gateway; its work after answers goes no further than its first tokens."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.begun = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._gateway, name)

    async def stream(self, pool: str, request: EngineRequest, **terms: Any) -> AsyncIterator[EngineEvent]:
        async with aclosing(self._gateway.stream(pool, request, **terms)) as events:
            async for event in events:
                yield event
                if request.band is Band.BATCH and isinstance(event, Tokens):
                    self.begun.set()
                    await asyncio.Event().wait()


@pytest.fixture(scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="back") as folder:
        pools = [reference_pool(name, rate, "ascii") for name, rate in (("quick", 0.0), ("slow", 0.0), ("steady", 100.0))]
        tight = reference_pool("tight", 0.0, "ascii")
        pools.append(replace(tight, replica=replace(tight.replica, blocks=20)))
        gateway = Gateway(pools, SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        try:
            await gateway.wait_ready(30)
            yield gateway
        finally:
            await gateway.close()


@asynccontextmanager
async def working(gateway: object, settings: BackgroundSettings) -> AsyncIterator[tuple[Stage, Background]]:
    stage = Stage(gateway)  # type: ignore[arg-type]
    background = Background(stage.ports, stage.runner.planner, settings)
    stage.runner.on_end = background.after
    task = asyncio.create_task(background.run_for_ever())
    await stage.runner.start()
    try:
        yield stage, background
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await stage.close()


async def settled(background: Background) -> None:
    async with asyncio.timeout(30):
        while not background.idle:
            await asyncio.sleep(0.01)


async def ask(stage: Stage, conversation_id: object, text: str, model: str = "quick") -> Message:
    accepted = await stage.send(conversation_id, text, model=model, params=ANSWER)  # type: ignore[arg-type]
    generation = await stage.ended(accepted.generation_id)
    assert generation.status is GenerationStatus.COMPLETE
    async with asyncio.timeout(30):
        while stage.runner.running:
            await asyncio.sleep(0.002)
    return await stage.message(accepted.message_id)


async def talk(stage: Stage, background: Background, turns: int = 12) -> list[Message]:
    conversation_id = await stage.conversation()
    answers: list[Message] = []
    for number in range(turns):
        answers.append(await ask(stage, conversation_id, f"My number {number} is {LONG}"))
        await settled(background)
    return answers


async def test_a_title_comes_after_the_first_answer_and_only_then(gateway: Gateway) -> None:
    says = Says(gateway, '"Boiling an egg"')
    async with working(says, BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        await ask(stage, conversation_id, "How do I boil an egg well, and for how many minutes?")
        await settled(background)
        head = await stage.conversations.get(stage.owner, conversation_id)
        assert (head.title, head.title_source) == ("Boiling an egg", TitleSource.AUTO)
        await ask(stage, conversation_id, "And two?")
        await settled(background)
        assert len(says.requests) == 1
        assert (says.requests[0].band, says.requests[0].sampling.max_tokens) == (Band.BATCH, 24)


def bills(stage: Stage) -> list[UsageRecord]:
    """What was put down for work after answers."""
    records = [usage_record(row.payload) for row in stage.state.outbox]
    return [record for record in records if record.purpose is not Purpose.ANSWER]


async def test_a_title_is_on_the_bill_of_whoever_has_the_conversation(gateway: Gateway) -> None:
    says = Says(gateway, "Boiling an egg")
    async with working(says, BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        await ask(stage, conversation_id, "How do I boil an egg?")
        await settled(background)
        (bill,) = bills(stage)
        assert (bill.purpose, bill.generation_id) == (Purpose.TITLE, says.requests[0].request_id)
        assert (bill.user_id, bill.conversation_id, bill.pool) == (stage.owner.user_id, conversation_id, "quick")
        assert (bill.usage.prompt_tokens, bill.usage.output_tokens, bill.estimated) == (1, 1, False)


async def test_work_that_is_broken_off_is_billed_as_far_as_it_came(gateway: Gateway) -> None:
    halts = Halts(gateway)
    async with working(halts, BackgroundSettings(pool="steady")) as (stage, background):
        conversation_id = await stage.conversation()
        await ask(stage, conversation_id, "How do I boil an egg?")
        await halts.begun.wait()
        background.cancel(stage.owner, conversation_id)
        await settled(background)
        (bill,) = bills(stage)
        assert (bill.finish_reason, bill.estimated) == (None, True)
        assert 0 < bill.usage.output_tokens < 24


@pytest.mark.parametrize("text", ["", "war and peace and love", EngineFailed("gone"), RuntimeError("a bug")])
async def test_without_a_good_title_the_first_words_stay(gateway: Gateway, text: str | Exception) -> None:
    async with working(Says(gateway, text), BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        await ask(stage, conversation_id, "How do I boil an egg?")
        await settled(background)
        assert (await stage.conversations.get(stage.owner, conversation_id)).title == "How do I boil an egg?"


async def test_a_title_given_by_the_user_meanwhile_stays(gateway: Gateway) -> None:
    says = Says(gateway, "Boiling an egg", after_s=0.2)
    async with working(says, BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        await ask(stage, conversation_id, "How do I boil an egg?")
        async with asyncio.timeout(30):
            while not says.requests:
                await asyncio.sleep(0.005)
        await stage.conversations.update(stage.owner, conversation_id, ConversationPatch(title="Mine"), now=stage.clock.now())
        await settled(background)
        assert (await stage.conversations.get(stage.owner, conversation_id)).title == "Mine"


async def test_a_title_is_told_to_whoever_reads_the_next_answer(gateway: Gateway) -> None:
    async with working(Says(gateway, "Boiling an egg", after_s=0.1), BackgroundSettings()) as (stage, background):
        background.on_title = stage.runner.entitle
        conversation_id = await stage.conversation()
        await ask(stage, conversation_id, "How do I boil an egg?")
        next_turn = await stage.send(conversation_id, "And two?", model="steady", params=TurnParams(max_tokens=400))
        told: list[object] = []
        async with stage.runner.reading(next_turn.generation_id) as states:
            async for state in states:
                told.append(state and state.event)
                if told[-1] == Title("Boiling an egg"):
                    await stage.runner.cancel(stage.owner, next_turn.generation_id)
        assert told.count(Title("Boiling an egg")) == 1
        assert (await stage.generation(next_turn.generation_id)).status is GenerationStatus.CANCELLED


async def test_work_ends_with_its_conversation(gateway: Gateway) -> None:
    says = Says(gateway, "Boiling an egg", after_s=30)
    async with working(says, BackgroundSettings()) as (stage, background):
        first, second = await stage.conversation(), await stage.conversation()
        for conversation_id in (first, second):
            await ask(stage, conversation_id, "How do I boil an egg?")
        async with asyncio.timeout(30):
            while not says.requests:
                await asyncio.sleep(0.005)
        await stage.conversations.delete(stage.owner, first, now=stage.clock.now())
        background.cancel(stage.owner, first)
        async with asyncio.timeout(30):
            while len(says.requests) < 2:
                await asyncio.sleep(0.005)
        assert says.closed == 1
        background.cancel(stage.owner)
        await settled(background)
        assert says.closed == 2


async def test_temporary_and_failed_turns_need_no_work(gateway: Gateway) -> None:
    says = Says(gateway, "x")
    async with working(says, BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        head = stage.state.conversations[conversation_id]
        stage.state.conversations[conversation_id] = replace(head, temporary=True)
        await ask(stage, conversation_id, "How do I boil an egg?")
        await settled(background)
        other = await stage.conversation()
        accepted = await stage.send(other, "hello", model="slow", params=ANSWER)
        await stage.runner.cancel(stage.owner, accepted.generation_id)
        await settled(background)
        assert says.requests == []


async def test_a_summary_is_there_before_the_trim_that_needs_it(gateway: Gateway) -> None:
    async with working(gateway, BackgroundSettings(titles="words")) as (stage, background):
        answers = await talk(stage, background)
        trims = [answer.prompt for answer in answers if answer.prompt is not None and answer.prompt.trimmed]
        assert trims
        summaries = await stage.ports.prompts.summaries(stage.owner, answers[0].conversation_id)
        made = {summary.through: summary.created_at for summary in summaries}
        for record in trims:
            assert record.summary is not None
            assert made[record.summary] < next(one for one in answers if one.prompt == record).created_at


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("The user counts numbers of some length for a long while.", "reference-quick"),
        ("", "extract"),
        ("is of some length of some length of some length", "extract"),
        (EngineFailed("gone"), "extract"),
    ],
)
async def test_whatever_the_summariser_does_there_is_a_summary(gateway: Gateway, text: str | Exception, source: str) -> None:
    settings = BackgroundSettings(titles="words", summaries="model", pool="quick")
    async with working(Says(gateway, text), settings) as (stage, background):
        answers = await talk(stage, background)
        summaries = await stage.ports.prompts.summaries(stage.owner, answers[0].conversation_id)
        assert {summary.source for summary in summaries} == {source}
        assert all(answer.status is MessageStatus.COMPLETE for answer in answers)


async def test_a_failed_title_keeps_no_other_work_away(gateway: Gateway) -> None:
    says = Says(gateway, EngineFailed("gone"))
    async with working(says, BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        answer = await ask(stage, conversation_id, "My number is 7.")
        await settled(background)
        assert len(says.requests) == 1
        assert stage.runner.planner.recall.missing(conversation_id, [answer.id]) == ()


async def test_what_is_asked_of_a_model_fits_its_context(gateway: Gateway) -> None:
    says = Says(gateway, "The user counts numbers of some length for a long while.")
    async with working(says, replace(BY_MODEL, titles="words")) as (stage, background):
        answers = await talk(stage, background)
        assert says.requests
        tokenizer = gateway.tokenizer("quick")
        for request in says.requests:
            assert len(request.prompt_ids) + request.sampling.max_tokens <= CONTEXT_TOKENS
            assert request.prompt_ids[:8] == tuple(tokenizer.prompt(summary_request("", [], 0)))[:8]
        summaries = await stage.ports.prompts.summaries(stage.owner, answers[0].conversation_id)
        assert {summary.source for summary in summaries} == {"reference-quick"}


async def test_a_conversation_deleted_amid_its_summary_leaves_nothing(gateway: Gateway) -> None:
    says = Says(gateway, "The user counts numbers of some length for a long while.", after_s=30)
    async with working(says, replace(BY_MODEL, titles="words")) as (stage, background):
        conversation_id = await stage.conversation()
        async with asyncio.timeout(30):
            number = 0
            while not says.requests:
                await ask(stage, conversation_id, f"My number {number} is {LONG}")
                number += 1
        known = stage.state.summaries.copy()
        await stage.conversations.delete(stage.owner, conversation_id, now=stage.clock.now())
        background.cancel(stage.owner, conversation_id)
        await settled(background)
        assert says.closed == len(says.requests)
        assert stage.state.summaries == known
        recall = stage.runner.planner.recall
        late = Message(MessageId("msg_late"), conversation_id, None, Role.USER, "a secret", MessageStatus.COMPLETE, stage.clock.now())
        recall.learn(conversation_id, [late])
        assert recall.search(conversation_id, [late.id], (), "What is my secret?", Room(600, 600, by_characters)) == ()
        assert (await ask(stage, await stage.conversation(), "hello")).status is MessageStatus.COMPLETE


def by_characters(snippet: Snippet) -> int:
    return len(snippet.text)


async def test_a_slow_summariser_delays_nobody(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errand, "DEADLINE_S", 0.3)
    says = Says(gateway, "too late to matter at all", after_s=30)
    async with working(says, replace(BY_MODEL, titles="words")) as (stage, background):
        conversation_id = await stage.conversation()
        answers = [await ask(stage, conversation_id, f"My number {number} is {LONG}") for number in range(12)]
        await settled(background)
        assert says.requests
        assert any(answer.prompt is not None and answer.prompt.summary is not None for answer in answers)
        summaries = await stage.ports.prompts.summaries(stage.owner, conversation_id)
        assert {summary.source for summary in summaries} == {"extract"}


async def test_a_summariser_killed_at_work_harms_no_chat(gateway: Gateway) -> None:
    async def kill_at_work() -> None:
        while not gateway.replicas("steady")[0].running:
            await asyncio.sleep(0.002)
        os.kill(gateway.replicas("steady")[0].pid or 0, signal.SIGKILL)

    async with working(gateway, BackgroundSettings(titles="words", summaries="model", pool="steady")) as (stage, background):
        conversation_id = await stage.conversation()
        killing = asyncio.create_task(kill_at_work())
        answers = [await ask(stage, conversation_id, f"My number {number} is {LONG}") for number in range(12)]
        async with asyncio.timeout(30):
            await killing
        await settled(background)
        answers.append(await ask(stage, conversation_id, "and now?"))
        assert {answer.status for answer in answers} == {MessageStatus.COMPLETE}
        summaries = await stage.ports.prompts.summaries(stage.owner, conversation_id)
        assert "extract" in {summary.source for summary in summaries}


@pytest.mark.parametrize("model", ["quick", "tight"])
async def test_a_title_takes_nothing_from_its_chats_cache(gateway: Gateway, model: str) -> None:
    """Also where both do not fit into the replica's blocks at once."""
    async with working(gateway, BackgroundSettings()) as (stage, background):
        conversation_id = await stage.conversation()
        first = await ask(stage, conversation_id, "#" * 380, model)
        await settled(background)
        second = await ask(stage, conversation_id, "and now?", model)
        assert gateway.replicas(model)[0].held_blocks == 0
        assert first.prompt_tokens is not None
        assert second.cached_tokens is not None
        assert second.cached_tokens >= 0.9 * first.prompt_tokens
