"""What the model is given, turn after turn, over a real store, gateway and runner."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise, takewhile
from pathlib import Path
from typing import cast

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.errors import NotFound, PromptTooLong
from antiphon.core.generation import GenerationStatus, TurnParams
from antiphon.core.ids import ConversationId, MemoryId, MessageId, UserId
from antiphon.core.messages import Message, PromptRecord
from antiphon.core.prompts import Memory
from antiphon.core.telemetry import NullTelemetry
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.acceptance import ContinueRequest
from antiphon.orchestrator.parts import PartKind, Question, RenderedPrompt, compose, opening_parts, render
from antiphon.orchestrator.planner import Place, PromptPlanner
from antiphon.stores.conversations.base import Conversations, Owner
from tests.orchestrator.conftest import reference_pool
from tests.orchestrator.stage import Failing, Stage

ANSWER = TurnParams(max_tokens=30)


@pytest.fixture(scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="plan") as folder:
        pools = [reference_pool(name, 0.0, "ascii") for name in ("quick", "slow")]
        gateway = Gateway(pools, SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        try:
            await gateway.wait_ready(30)
            yield gateway
        finally:
            await gateway.close()


async def ask(stage: Stage, conversation_id: ConversationId, text: str | None, parent: MessageId | None = None) -> Message:
    """A whole turn; its answer."""
    where = {} if parent is None else {"parent": parent}
    accepted = await stage.send(conversation_id, text, params=ANSWER, **where)
    generation = await stage.ended(accepted.generation_id)
    assert generation.status is GenerationStatus.COMPLETE
    return await stage.message(accepted.message_id)


def record_of(message: Message) -> PromptRecord:
    assert message.prompt is not None
    return message.prompt


async def rendered(stage: Stage, answer: Message, planner: PromptPlanner | None = None) -> RenderedPrompt:
    """The prompt of a stored turn, made again; by a process that has just been started, unless a ``planner`` is given."""
    question = await stage.message(answer.parent_id or MessageId(""))
    place = Place(stage.owner, answer.conversation_id, question.parent_id)
    planner = planner or PromptPlanner(stage.ports)
    pool = stage.ports.gateway.resolve("quick", ())
    prompt = await planner.render(place, Question(question.id, question.content), record_of(answer), pool)
    assert prompt is not None
    return prompt


def turns(prompt: RenderedPrompt) -> list[str]:
    return [counted.part.text for counted in prompt.parts if counted.part.kind is PartKind.TURN]


async def test_a_prompt_grows_at_its_end_until_it_is_trimmed(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    before: RenderedPrompt | None = None
    trims: list[int] = []
    for number in range(40):
        answer = await ask(stage, conversation_id, f"question {number} " + "of some length " * 3)
        record, now = record_of(answer), await rendered(stage, answer)
        assert answer.prompt_tokens == record.tokens == len(now.ids)
        if record.trimmed:
            trims.append(number)
            assert len(now.ids) <= 1024 * 0.75 * 0.7
        elif before is not None:
            assert now.ids[: len(before.ids) - 1] == before.ids[:-1]
        before = now
    assert 2 <= len(trims) <= 40 / 4
    assert record_of(answer).omitted > 0
    assert record_of(answer).summary is not None


async def test_any_process_makes_the_same_prompt_of_a_stored_turn(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    for number in range(12):
        answer = await ask(stage, conversation_id, f"question {number} " + "of some length " * 4)
    assert await rendered(stage, answer) == await rendered(stage, answer, stage.runner.planner)


async def test_a_trim_says_what_it_left_out(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    await ask(stage, conversation_id, "My boat is called Amaryllis and has 3 masts.")
    while True:
        answer = await ask(stage, conversation_id, "tell me more about the sea and the wind " * 4)
        if record_of(answer).omitted:
            break
    record = record_of(answer)
    path = await stage.conversations.branch_ids(stage.owner, conversation_id, answer.id)
    omitted = await stage.runner.planner.omitted(Place(stage.owner, conversation_id, path[-3]), record)
    assert omitted == path[: record.omitted]
    assert path[record.omitted] == record.start
    assert record.summary in omitted
    prompt = await rendered(stage, answer)
    summary = [counted.part.text for counted in prompt.parts if counted.part.kind is PartKind.SUMMARY]
    assert len(summary) == 1
    assert "Amaryllis" in summary[0]


async def test_an_edited_branch_finds_its_own_window_and_summary(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    answers = [await ask(stage, conversation_id, f"alpha {number} " + "of some length " * 5) for number in range(14)]
    assert record_of(answers[-1]).summary is not None
    edited = await ask(stage, conversation_id, "beta " + "of some length " * 5, parent=answers[0].id)
    record = record_of(edited)
    assert (record.omitted, record.summary) == (0, None)
    assert turns(await rendered(stage, edited))[-1].startswith("beta")
    for number in range(14):
        edited = await ask(stage, conversation_id, f"beta {number} " + "of some length " * 5, parent=edited.id)
    path = await stage.conversations.branch_ids(stage.owner, conversation_id, edited.id)
    assert record_of(edited).summary in path
    assert not any(text.startswith("alpha 5") for text in turns(await rendered(stage, edited)))


async def test_a_question_larger_than_the_context_is_refused_before_anything_is_spent(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    await ask(stage, conversation_id, "hello")
    before = (len(stage.state.messages), len(stage.state.generations), len(stage.state.outbox))
    with pytest.raises(PromptTooLong) as refused:
        await stage.send(conversation_id, "#" * 2000)
    assert refused.value.prompt_tokens > 2000
    assert refused.value.limit_tokens == 1024 - 16
    assert (len(stage.state.messages), len(stage.state.generations), len(stage.state.outbox)) == before


async def test_instructions_and_memory_are_read_but_not_in_a_temporary_chat(stage: Stage) -> None:
    await stage.ports.personal.put_instructions(stage.owner, "Answer in verse.")
    await stage.ports.personal.add_memory(stage.owner, Memory(MemoryId("mem_1"), "drinks tea", stage.clock.now()), at_most=9)
    conversation_id = await stage.conversation()
    answer = await ask(stage, conversation_id, "hello")
    texts = {counted.part.kind: counted.part.text for counted in (await rendered(stage, answer)).parts}
    assert "Answer in verse." in texts[PartKind.INSTRUCTIONS]
    assert "- drinks tea" in texts[PartKind.MEMORY]
    await stage.ports.personal.forget(stage.owner)
    texts = {counted.part.kind: counted.part.text for counted in (await rendered(stage, answer)).parts}
    assert "Answer in verse." in texts[PartKind.INSTRUCTIONS]
    await stage.ports.personal.put_instructions(stage.owner, "Answer in verse.")
    head = await stage.conversations.get(stage.owner, await stage.conversation())
    stage.state.conversations[head.id] = replace(head, temporary=True)
    assert record_of(await ask(stage, head.id, "hello")).preamble == ""


class MovedClock(SystemClock):
    """The real clock, ahead by ``ahead``."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


async def test_a_prefix_is_the_same_across_a_minute_and_a_day(gateway: Gateway) -> None:
    clock = MovedClock()
    stage = Stage(gateway, ports={"clock": clock})
    await stage.runner.start()
    await stage.ports.personal.put_instructions(stage.owner, "Answer in verse.")
    conversation_id = await stage.conversation()
    moments = (timedelta(0), timedelta(minutes=1), timedelta(days=1), timedelta(days=400))
    asked: list[RenderedPrompt] = []
    for number, clock.ahead in enumerate(moments):
        answer = await ask(stage, conversation_id, f"question {number}")
        asked.append(await rendered(stage, answer))
        clock.ahead += timedelta(seconds=1)
        assert await rendered(stage, answer) == asked[-1]
    for earlier, later in pairwise(asked):
        assert later.ids[: len(earlier.ids) - 1] == earlier.ids[:-1]
    assert answer.cached_tokens is not None
    assert answer.cached_tokens >= len(asked[-2].ids) // 32 * 32 - 32
    await stage.close()


async def test_two_users_of_a_tenant_share_a_prefix_up_to_their_own_words(stage: Stage) -> None:
    eve = Owner(stage.owner.tenant_id, UserId("user_2"))
    prompts: dict[str, tuple[int, ...]] = {}
    for owner, instructions in ((stage.owner, ""), (eve, ""), (stage.owner, "Be loud."), (eve, "Be quiet.")):
        await stage.ports.personal.put_instructions(owner, instructions)
        place = Place(owner, ConversationId("conv_none"), None)
        question, pool = Question(MessageId("msg_new"), "hello"), stage.ports.gateway.resolve("quick", ())
        planned = await stage.runner.planner.plan(place, question, pool)
        assert (planned.preamble is None) is (not instructions)
        said = compose([], question, planned.record, opening_parts(planned.preamble, ""))
        prompts[f"{owner.user_id}{instructions}"] = render(await stage.runner.planner.texts(pool), said).ids
    bare, other, loud, quiet = prompts.values()
    assert bare == other
    own = len(ReferenceTokenizer("ascii").encode("Be "))
    assert shared(loud, quiet) >= shared(bare, loud) + own


def shared(one: tuple[int, ...], two: tuple[int, ...]) -> int:
    """How many ids they begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


async def test_instructions_that_fill_the_context_are_named_in_the_refusal(stage: Stage) -> None:
    await stage.ports.personal.put_instructions(stage.owner, "#" * 1500)
    conversation_id = await stage.conversation()
    with pytest.raises(PromptTooLong, match="of them for your instructions and memory") as refused:
        await stage.send(conversation_id, "hello")
    assert refused.value.prompt_tokens > 1500
    await stage.ports.personal.put_instructions(stage.owner, "")
    assert record_of(await ask(stage, conversation_id, "hello")).preamble == ""


async def test_continue_reads_what_was_read_before(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    for number in range(12):
        answer = await ask(stage, conversation_id, f"question {number} " + "of some length " * 4)
    again = await stage.desk.continue_message(stage.principal, ContinueRequest(answer.id, TurnParams(max_tokens=5), None, "f"))
    await stage.ended(again.generation_id)
    assert record_of(await stage.message(answer.id)) == record_of(answer)


async def test_another_model_counts_anew_once(gateway: Gateway) -> None:
    stage = Stage(gateway)
    await stage.runner.start()
    conversation_id = await stage.conversation()
    answer = await ask(stage, conversation_id, "hello there")
    other = await stage.send(conversation_id, "and now", model="slow", params=TurnParams(max_tokens=3))
    await stage.ended(other.generation_id)
    counts = await stage.ports.prompts.counts(stage.owner, conversation_id, "reference-slow")
    tokens = len(gateway.tokenizer("slow").encode("hello there"))
    assert counts == {answer.parent_id: tokens, answer.id: answer.content_tokens}
    await stage.close()


async def test_what_left_the_window_comes_back_when_it_is_asked_for_and_stays_with_that_turn(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    told = await ask(stage, conversation_id, "My boat Amaryllis has three masts and a green hull.")
    while not record_of(answer := await ask(stage, conversation_id, "tell us more about the sea and the wind " * 4)).omitted:
        pass
    asked = await ask(stage, conversation_id, "Which colour has the hull of my boat?")
    snippets = record_of(asked).snippets
    assert [snippet.message_id for snippet in snippets] == [told.parent_id]
    before = await rendered(stage, asked)
    kinds = [counted.part.kind for counted in before.parts]
    assert kinds[-2:] == [PartKind.SNIPPET, PartKind.TURN]
    answer = await ask(stage, conversation_id, "thanks")
    now = await rendered(stage, answer)
    assert record_of(answer).snippets == ()
    assert now.ids[: len(before.ids) - 1] == before.ids[:-1]


async def test_a_turn_that_was_looked_ahead_to_is_planned_without_a_read(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    for text in ("one", "two"):
        answer = await ask(stage, conversation_id, text)
    counted = Failing(stage.conversations, 10**9, NotFound(), after=False)
    planner = PromptPlanner(replace(stage.ports, conversations=cast("Conversations", counted)))
    place, pool = Place(stage.owner, conversation_id, answer.id), stage.ports.gateway.resolve("quick", ())
    question = Question(MessageId("msg_new"), "three")
    await planner.draft(place, Question(answer.id, ""), pool)
    reads = counted.calls
    planned = await planner.plan(place, question, pool)
    assert counted.calls == reads
    assert planned == await PromptPlanner(stage.ports).plan(place, question, pool)
    with pytest.raises(NotFound):
        await planner.plan(replace(place, owner=Owner(stage.owner.tenant_id, UserId("user_2"))), question, pool)
    reads = counted.calls
    planner.forget(answer.id)
    assert await planner.plan(place, question, pool) == planned
    assert counted.calls > reads


async def test_a_continued_answer_is_read_whole(stage: Stage) -> None:
    conversation_id = await stage.conversation()
    answer = await ask(stage, conversation_id, "one")
    pool = stage.ports.gateway.resolve("quick", ())
    await stage.runner.planner.draft(Place(stage.owner, conversation_id, answer.id), Question(answer.id, ""), pool)
    again = await stage.desk.continue_message(stage.principal, ContinueRequest(answer.id, ANSWER, None, None))
    await stage.ended(again.generation_id)
    whole = await stage.message(answer.id)
    assert len(whole.content) > len(answer.content)
    following = await ask(stage, conversation_id, "two")
    assert whole.content in [counted.part.text for counted in (await rendered(stage, following, stage.runner.planner)).parts]
