"""The contract of summaries, preambles and counts, and of what a turn's row says of its prompt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import PromptRecord, Role, Snippet
from antiphon.core.prompts import Preamble, Summary
from tests.contracts.scene import Scene

PREAMBLE = Preamble("d1", "Answer in verse.", "- drinks tea")


async def test_the_record_of_a_turn_is_stored_with_its_answer(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id)
    record = PromptRecord("smol", first.message_id, 4, first.message_id, "d1", (Snippet(first.message_id, Role.USER, "é\u2028"),), 77, True)
    summary = Summary(head.id, first.message_id, "they met", "extract", scene.clock.now())
    turn = replace(scene.turn(owner, head.id, scene.text("again")), prompt=record, preamble=PREAMBLE, summary=summary)
    accepted = await scene.generations.accept(turn)
    assert (await scene.conversations.message(owner, accepted.message_id)).prompt == record
    assert await scene.prompts.preamble(owner, head.id, "d1") == PREAMBLE
    assert await scene.prompts.preamble(owner, head.id, "d2") is None
    assert await scene.prompts.summaries(owner, head.id) == (summary,)
    await scene.finish(accepted)
    assert (await scene.conversations.message(owner, accepted.message_id)).prompt == record


async def test_a_record_made_late_and_the_thoughts_come_with_the_end(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    accepted = await scene.send(owner, head.id)
    await scene.generations.claim(accepted.generation_id, now=scene.clock.now(), lease_until=scene.clock.now() + scene.leases)
    record = PromptRecord("smol", accepted.user_message_id or MessageId(""))
    await scene.generations.finalise(replace(scene.end(accepted, 1), prompt=record, reasoning="hm, so"))
    message = await scene.conversations.message(owner, accepted.message_id)
    assert (message.prompt, message.reasoning, message.counted_by) == (record, "hm, so", "smol")
    asked = await scene.conversations.message(owner, accepted.user_message_id or MessageId(""))
    assert (asked.prompt, asked.reasoning, asked.counted_by) == (None, "", "smol")


async def test_the_first_summary_through_a_message_stays(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    first = Summary(head.id, turn.message_id, "first", "smol", scene.clock.now())
    await scene.prompts.add_summary(owner, first)
    await scene.prompts.add_summary(owner, replace(first, text="second", created_at=scene.clock.now() + timedelta(seconds=1)))
    assert await scene.prompts.summaries(owner, head.id) == (first,)
    with pytest.raises(NotFound):
        await scene.prompts.add_summary(owner, replace(first, through=MessageId("msg_unknown")))


async def test_counts_are_each_models_own(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    asked = turn.user_message_id or MessageId("")
    await scene.prompts.add_counts(owner, head.id, "large", {turn.message_id: 5})
    await scene.prompts.add_counts(owner, head.id, "large", {turn.message_id: 9, asked: 2})
    assert await scene.prompts.counts(owner, head.id, "large") == {turn.message_id: 5, asked: 2}
    assert await scene.prompts.counts(owner, head.id, "smol") == {}
    with pytest.raises(NotFound):
        await scene.prompts.add_counts(owner, head.id, "large", {MessageId("msg_unknown"): 1})


async def test_all_of_it_is_the_owners_and_goes_with_the_conversation(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    summary = Summary(head.id, turn.message_id, "they spoke", "extract", scene.clock.now())

    async def refuse_all(who: object, conversation_id: ConversationId) -> None:
        asker = owner if who is None else who
        for call in (
            scene.prompts.summaries(asker, conversation_id),
            scene.prompts.add_summary(asker, replace(summary, conversation_id=conversation_id)),
            scene.prompts.preamble(asker, conversation_id, "d1"),
            scene.prompts.counts(asker, conversation_id, "smol"),
            scene.prompts.add_counts(asker, conversation_id, "smol", {}),
        ):
            with pytest.raises(NotFound):
                await call

    await refuse_all(scene.owner("t1", "u2"), head.id)
    await refuse_all(scene.owner("t2"), head.id)
    await refuse_all(None, ConversationId("conv_unknown"))
    await scene.prompts.add_summary(owner, summary)
    await scene.prompts.add_counts(owner, head.id, "large", {turn.message_id: 5})
    await scene.conversations.delete(owner, head.id, now=scene.clock.now())
    await refuse_all(None, head.id)
    scene.clock.advance(1)
    assert (await scene.custody.purge(deleted_before=scene.clock.now(), limit=9)).conversations == 1
