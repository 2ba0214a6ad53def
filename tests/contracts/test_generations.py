"""The contract of generations: accepting, running and ending turns."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from antiphon.core.errors import Conflict, IdempotencyMismatch, InvalidRequest, NotFound, ParentStreaming, StaleEpoch
from antiphon.core.generation import GenerationStatus, Usage
from antiphon.core.ids import ConversationId, GenerationId, MessageId
from antiphon.core.messages import Message, MessageError, MessageStatus, Role
from antiphon.core.tenancy import Band
from antiphon.stores.conversations.base import ConversationPatch, Owner
from antiphon.stores.generations.base import Accepted, ContinueMessage, RegenerateUnder
from tests.contracts.scene import Scene


async def messages_of(scene: Scene, owner: Owner, accepted: Accepted) -> tuple[Message, Message]:
    assert accepted.user_message_id is not None
    return (
        await scene.conversations.message(owner, accepted.user_message_id),
        await scene.conversations.message(owner, accepted.message_id),
    )


async def test_a_turn_is_two_messages_and_a_generation(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = scene.turn(owner, head.id, scene.text("What is a tree?\nTell me."))
    accepted = await scene.generations.accept(turn)
    question, answer = await messages_of(scene, owner, accepted)
    assert (question.role, question.content, question.parent_id) == (Role.USER, "What is a tree?\nTell me.", None)
    assert (question.status, question.content_tokens) == (MessageStatus.COMPLETE, len(question.content))
    assert (answer.role, answer.content, answer.parent_id) == (Role.ASSISTANT, "", question.id)
    assert (answer.status, answer.generation_id) == (MessageStatus.STREAMING, turn.generation_id)
    assert (answer.model, answer.requested_model) == ("smol", "small")
    generation = await scene.generations.get(owner, accepted.generation_id)
    assert (generation.status, generation.epoch, generation.params) == (GenerationStatus.QUEUED, 0, turn.params)
    assert (generation.message_id, generation.user_message_id) == (answer.id, question.id)
    assert (generation.pool, generation.plan, generation.band, generation.prior_text) == ("small", "free", Band.LOW, "")
    after = await scene.conversations.get(owner, head.id)
    assert (after.current_leaf_id, after.version, after.title) == (answer.id, 2, "What is a tree?")
    assert await scene.generations.count_open() == 1
    assert await scene.generations.opened(limit=5) == (generation,)


async def test_the_stores_clock_is_aware_and_does_not_run_backwards(scene: Scene) -> None:
    first, second = await scene.generations.now(), await scene.generations.now()
    assert first.utcoffset() == timedelta(0)
    assert first <= second
    assert first.year >= 2026


async def test_only_an_untitled_conversation_gets_a_first_title(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="mine")
    await scene.send(owner, head.id, "something else")
    assert (await scene.conversations.get(owner, head.id)).title == "mine"


async def test_the_current_leaf_is_resolved_when_the_turn_is_accepted(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id)
    second = await scene.exchange(owner, head.id)
    question, _ = await messages_of(scene, owner, second)
    assert question.parent_id == first.message_id
    await scene.conversations.update(owner, head.id, ConversationPatch(current_leaf_id=first.message_id), now=scene.clock.now())
    third = await scene.send(owner, head.id)
    question, _ = await messages_of(scene, owner, third)
    assert question.parent_id == second.message_id, "what the default path shows is what is answered"


async def test_the_same_parent_twice_makes_siblings(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id)
    both = await asyncio.gather(*(scene.send(owner, head.id, text, first.message_id) for text in ("left", "right")))
    page = await scene.conversations.path(owner, head.id, leaf=both[0].message_id, limit=9, before=None)
    assert page.siblings[page.messages[2].id] == tuple(sorted(turn.user_message_id or "" for turn in both))


async def test_text_needs_a_finished_answer_of_this_conversation_as_parent(scene: Scene) -> None:
    owner = scene.owner()
    head, other = await scene.conversation(owner), await scene.conversation(owner)
    foreign = await scene.exchange(owner, other.id)
    turn = await scene.send(owner, head.id)
    before = await scene.conversations.tree(owner, head.id)
    with pytest.raises(ParentStreaming):
        await scene.send(owner, head.id)
    with pytest.raises(ParentStreaming):
        await scene.send(owner, head.id, parent=turn.message_id)
    with pytest.raises(InvalidRequest) as refused:
        await scene.send(owner, head.id, parent=turn.user_message_id)
    assert refused.value.faults[0].path == "parent_message_id"
    for unknown in (foreign.message_id, MessageId("msg_unknown")):
        with pytest.raises(NotFound):
            await scene.send(owner, head.id, parent=unknown)
    for stranger in (scene.owner("t1", "u2"), scene.owner("t2", "u1")):
        with pytest.raises(NotFound):
            await scene.send(stranger, head.id)
    with pytest.raises(NotFound):
        await scene.send(owner, ConversationId("conv_unknown"))
    assert await scene.conversations.tree(owner, head.id) == before
    assert await scene.generations.count_open() == 1


async def test_regenerate_adds_an_answer_under_the_user_message(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id)
    assert first.user_message_id is not None
    again = await scene.generations.accept(scene.turn(owner, head.id, RegenerateUnder(first.user_message_id)))
    assert again.user_message_id == first.user_message_id
    _, answer = await messages_of(scene, owner, again)
    assert answer.parent_id == first.user_message_id
    assert (await scene.conversations.get(owner, head.id)).current_leaf_id == again.message_id
    with pytest.raises(InvalidRequest):
        await scene.generations.accept(scene.turn(owner, head.id, RegenerateUnder(first.message_id)))
    with pytest.raises(NotFound):
        await scene.generations.accept(scene.turn(owner, head.id, RegenerateUnder(MessageId("msg_unknown"))))


async def test_ids_are_used_once(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = scene.turn(owner, head.id, scene.text(parent=None))
    await scene.generations.accept(turn)
    with pytest.raises(Conflict):
        await scene.generations.accept(turn)
    assert await scene.generations.count_open() == 1


CUT_SHORT = [
    (GenerationStatus.CANCELLED, "cancelled", None),
    (GenerationStatus.INTERRUPTED, None, MessageError("interrupted", "The server stopped.", True)),
    (GenerationStatus.FAILED, None, MessageError("engine_failed", "The engine died.", True)),
    (GenerationStatus.COMPLETE, "length", None),
]


@pytest.mark.parametrize(("status", "finish_reason", "error"), CUT_SHORT)
async def test_an_answer_cut_short_is_continued_in_place(
    scene: Scene, status: GenerationStatus, finish_reason: str | None, error: MessageError | None
) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.send(owner, head.id)
    with pytest.raises(ParentStreaming):
        await scene.generations.accept(scene.turn(owner, head.id, ContinueMessage(turn.message_id)))
    await scene.finish(turn, "half an ", status, finish_reason, error)
    _, answer = await messages_of(scene, owner, turn)
    assert (answer.content, answer.status.value, answer.error) == ("half an ", status.value, error)

    more = await scene.generations.accept(scene.turn(owner, head.id, ContinueMessage(turn.message_id)))
    assert (more.message_id, more.user_message_id) == (turn.message_id, turn.user_message_id)
    assert more.generation_id != turn.generation_id
    _, answer = await messages_of(scene, owner, more)
    assert (answer.content, answer.status, answer.generation_id) == ("half an ", MessageStatus.STREAMING, more.generation_id)
    assert (answer.error, answer.finish_reason) == (None, None)
    assert (await scene.generations.get(owner, more.generation_id)).prior_text == "half an "
    await scene.finish(more, "half an answer")
    _, answer = await messages_of(scene, owner, more)
    assert (answer.content, answer.status, answer.content_tokens) == ("half an answer", MessageStatus.COMPLETE, 3)


async def test_what_is_complete_or_not_an_answer_is_not_continued(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    for message_id in (turn.message_id, turn.user_message_id or MessageId("")):
        with pytest.raises(InvalidRequest):
            await scene.generations.accept(scene.turn(owner, head.id, ContinueMessage(message_id)))
    with pytest.raises(NotFound):
        await scene.generations.accept(scene.turn(owner, head.id, ContinueMessage(MessageId("msg_unknown"))))


async def test_a_key_answers_with_the_turn_it_accepted(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    key = scene.key()
    assert await scene.generations.find_replay(key, now=scene.clock.now()) is None
    first = await scene.generations.accept(scene.turn(owner, head.id, scene.text(), key))
    assert not first.replayed
    again = await scene.generations.accept(scene.turn(owner, head.id, scene.text(), key))
    assert again == replace(first, replayed=True)
    assert await scene.generations.find_replay(key, now=scene.clock.now()) == again
    other = replace(key, fingerprint="f2")
    with pytest.raises(IdempotencyMismatch):
        await scene.generations.find_replay(other, now=scene.clock.now())
    with pytest.raises(IdempotencyMismatch):
        await scene.generations.accept(scene.turn(owner, head.id, scene.text(), other))
    assert await scene.generations.count_open() == 1
    elsewhere = replace(key, scope="t2/u1/POST/messages")
    assert await scene.generations.find_replay(elsewhere, now=scene.clock.now()) is None


async def test_a_key_is_free_again_once_it_expired(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    key = scene.key()
    first = await scene.generations.accept(scene.turn(owner, head.id, scene.text(parent=None), key))
    just_before = key.expires_at - timedelta(milliseconds=1)
    assert await scene.generations.find_replay(key, now=just_before) == replace(first, replayed=True)
    assert await scene.generations.find_replay(key, now=key.expires_at) is None
    scene.clock.advance(24 * 3600)
    renewed = replace(key, fingerprint="f2", expires_at=scene.clock.now() + timedelta(hours=24))
    second = await scene.generations.accept(scene.turn(owner, head.id, scene.text(parent=None), renewed))
    assert (second.replayed, second.generation_id != first.generation_id) == (False, True)


async def test_a_refused_turn_leaves_its_key_free(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    key = scene.key()
    with pytest.raises(NotFound):
        await scene.generations.accept(scene.turn(owner, head.id, scene.text(parent=MessageId("msg_unknown")), key))
    assert await scene.generations.find_replay(key, now=scene.clock.now()) is None


async def test_fifty_callers_with_one_key_make_one_generation(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turns = [scene.turn(owner, head.id, scene.text(parent=None), scene.key()) for _ in range(50)]
    answers = await asyncio.gather(*(scene.generations.accept(turn) for turn in turns))
    assert len({answer.generation_id for answer in answers}) == 1
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 49
    assert await scene.generations.count_open() == 1
    assert len(await scene.conversations.tree(owner, head.id)) == 2


async def test_claims_are_exclusive_until_the_lease_ends(scene: Scene) -> None:
    owner = scene.owner()
    turn = await scene.send(owner, (await scene.conversation(owner)).id)
    name = turn.generation_id
    now = scene.clock.now()
    lease = now + timedelta(seconds=10)
    assert await scene.generations.due(now=now, limit=9) == (name,)
    claims = await asyncio.gather(*(scene.generations.claim(name, now=now, lease_until=lease) for _ in range(5)))
    taken = [claim for claim in claims if claim is not None]
    assert [(claim.epoch, claim.status, claim.lease_until) for claim in taken] == [(1, GenerationStatus.RUNNING, lease)]
    assert await scene.generations.due(now=lease - timedelta(milliseconds=1), limit=9) == ()
    assert await scene.generations.claim(name, now=lease - timedelta(milliseconds=1), lease_until=lease) is None
    assert await scene.generations.heartbeat(name, 1, lease_until=lease + timedelta(seconds=10)) is False
    assert await scene.generations.claim(name, now=lease, lease_until=lease) is None
    later = lease + timedelta(seconds=10)
    assert await scene.generations.due(now=later, limit=9) == (name,)
    second = await scene.generations.claim(name, now=later, lease_until=later + timedelta(seconds=10))
    assert second is not None
    assert second.epoch == 2
    assert await scene.generations.claim(GenerationId("gen_unknown"), now=later, lease_until=later) is None


async def test_an_overtaken_writer_is_refused_everywhere(scene: Scene) -> None:
    owner = scene.owner()
    turn = await scene.send(owner, (await scene.conversation(owner)).id)
    name, now = turn.generation_id, scene.clock.now()
    await scene.generations.claim(name, now=now, lease_until=now)
    await scene.generations.checkpoint(name, 1, text="half", seq=4, usage=Usage(9, 0, 4))
    claimed = await scene.generations.claim(name, now=now, lease_until=now + scene.leases)
    assert claimed is not None
    assert (claimed.epoch, claimed.checkpoint_text, claimed.checkpoint_seq, claimed.usage) == (2, "half", 4, Usage(9, 0, 4))
    for epoch in (0, 1, 3):
        with pytest.raises(StaleEpoch):
            await scene.generations.heartbeat(name, epoch, lease_until=now)
        with pytest.raises(StaleEpoch):
            await scene.generations.checkpoint(name, epoch, text="stale", seq=9, usage=Usage(9, 0, 4))
        with pytest.raises(StaleEpoch):
            await scene.generations.finalise(scene.end(turn, epoch, "stale"))
    with pytest.raises(StaleEpoch):
        await scene.generations.heartbeat(GenerationId("gen_unknown"), 1, lease_until=now)
    generation = await scene.generations.get(owner, name)
    assert (generation.checkpoint_text, generation.status) == ("half", GenerationStatus.RUNNING)
    await scene.generations.finalise(scene.end(turn, 2, "whole"))
    assert (await scene.conversations.message(owner, turn.message_id)).content == "whole"


async def test_an_end_is_final(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.send(owner, head.id)
    now = scene.clock.now()
    await scene.generations.claim(turn.generation_id, now=now, lease_until=now + scene.leases)
    scene.clock.advance(3)
    usage = Usage(5, 2, 3, 4, 6, 30, 35, Decimal("0.00012300"))
    await scene.generations.finalise(replace(scene.end(turn, 1, "the text"), usage=usage))
    ended = await scene.generations.get(owner, turn.generation_id)
    assert (ended.status, ended.usage, ended.finished_at) == (GenerationStatus.COMPLETE, usage, scene.clock.now())
    assert (ended.ttft_ms, ended.duration_ms, ended.finish_reason, ended.error) == (12, 50, "stop", None)
    assert str(ended.usage.cost) == "0.00012300"
    message = await scene.conversations.message(owner, turn.message_id)
    assert (message.status, message.content, message.finish_reason) == (MessageStatus.COMPLETE, "the text", "stop")
    assert (message.prompt_tokens, message.cached_tokens, message.output_tokens, message.cost) == (5, 2, 3, usage.cost)
    assert (await scene.conversations.get(owner, head.id)).updated_at == scene.clock.now()

    with pytest.raises(StaleEpoch):
        await scene.generations.finalise(scene.end(turn, 1, "another text"))
    with pytest.raises(StaleEpoch):
        await scene.generations.checkpoint(turn.generation_id, 1, text="late", seq=99, usage=Usage(9, 0, 4))
    later = scene.clock.now() + timedelta(days=1)
    assert await scene.generations.claim(turn.generation_id, now=later, lease_until=later) is None
    assert await scene.generations.request_cancel(owner, turn.generation_id, now=later) == ended
    assert await scene.generations.due(now=later, limit=9) == ()
    assert await scene.generations.count_open() == 0


async def test_running_is_not_an_end(scene: Scene) -> None:
    owner = scene.owner()
    turn = await scene.send(owner, (await scene.conversation(owner)).id)
    with pytest.raises(ValueError, match="does not end"):
        await scene.generations.finalise(scene.end(turn, 0, status=GenerationStatus.RUNNING))


async def test_a_cancel_is_seen_by_whoever_runs_it(scene: Scene) -> None:
    owner = scene.owner()
    turn = await scene.send(owner, (await scene.conversation(owner)).id)
    now = scene.clock.now()
    asked = await scene.generations.request_cancel(owner, turn.generation_id, now=now)
    assert (asked.cancel_requested, asked.status) == (True, GenerationStatus.QUEUED)
    assert await scene.generations.request_cancel(owner, turn.generation_id, now=now) == asked
    claimed = await scene.generations.claim(turn.generation_id, now=now, lease_until=now + scene.leases)
    assert claimed is not None
    assert claimed.cancel_requested
    assert await scene.generations.heartbeat(turn.generation_id, 1, lease_until=now + scene.leases) is True
    for stranger in (scene.owner("t1", "u2"), scene.owner("t2", "u1")):
        with pytest.raises(NotFound):
            await scene.generations.request_cancel(stranger, turn.generation_id, now=now)
        with pytest.raises(NotFound):
            await scene.generations.get(stranger, turn.generation_id)
    with pytest.raises(NotFound):
        await scene.generations.get(owner, GenerationId("gen_unknown"))


async def test_due_is_oldest_first_and_bounded(scene: Scene) -> None:
    turns = []
    for number in range(4):
        owner = scene.owner(f"t{number}")
        turns.append(await scene.send(owner, (await scene.conversation(owner)).id))
        scene.clock.advance(1)
    now = scene.clock.now()
    assert await scene.generations.due(now=now, limit=3) == tuple(turn.generation_id for turn in turns[:3])
    assert await scene.generations.count_open() == 4


async def test_a_generation_of_a_deleted_conversation_ends_out_of_sight(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.send(owner, head.id)
    await scene.conversations.delete(owner, head.id, now=scene.clock.now())
    with pytest.raises(NotFound):
        await scene.send(owner, head.id, parent=None)
    with pytest.raises(NotFound):
        await scene.generations.get(owner, turn.generation_id)
    with pytest.raises(NotFound):
        await scene.generations.request_cancel(owner, turn.generation_id, now=scene.clock.now())
    assert await scene.generations.due(now=scene.clock.now(), limit=9) == (turn.generation_id,)
    await scene.finish(turn, "", GenerationStatus.CANCELLED, "cancelled")
    assert await scene.generations.count_open() == 0
