"""The contract of conversations."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta

import pytest

from antiphon.core.clock import from_ms
from antiphon.core.errors import BadCursor, Conflict, InvalidRequest, NotFound, StaleVersion
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Role, TitleSource
from antiphon.stores.conversations.base import ConversationPatch, Feedback
from antiphon.stores.generations.base import RegenerateUnder
from tests.contracts.scene import Scene


async def test_a_conversation_is_read_as_it_was_made(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="Ünï — 日本語 \u202e <|im_end|>")
    assert await scene.conversations.get(owner, head.id) == head
    with pytest.raises(Conflict):
        await scene.conversations.create(head)


async def test_unknown_foreign_and_deleted_are_the_same(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    now, patch = scene.clock.now(), ConversationPatch(title="x")

    async def refuse_all(who_asks: object, conversation_id: ConversationId, message_id: MessageId) -> None:
        who = scene.owner() if who_asks is None else who_asks
        calls = (
            scene.conversations.get(who, conversation_id),
            scene.conversations.update(who, conversation_id, patch, now=now),
            scene.conversations.delete(who, conversation_id, now=now),
            scene.conversations.path(who, conversation_id, leaf=None, limit=9, before=None),
            scene.conversations.branch(who, conversation_id, message_id, last=9),
            scene.conversations.branch_ids(who, conversation_id, message_id),
            scene.conversations.texts(who, conversation_id, [message_id]),
            scene.conversations.tree(who, conversation_id),
            scene.conversations.message(who, message_id),
            scene.conversations.put_feedback(who, message_id, Feedback(1), now=now),
        )
        for call in calls:
            with pytest.raises(NotFound):
                await call

    await refuse_all(scene.owner("t1", "u2"), head.id, turn.message_id)
    await refuse_all(scene.owner("t2", "u1"), head.id, turn.message_id)
    await refuse_all(None, ConversationId("conv_unknown"), MessageId("msg_unknown"))
    await scene.conversations.delete(owner, head.id, now=now)
    await refuse_all(None, head.id, turn.message_id)


async def test_pages_show_the_newest_first_without_deleted_temporary_and_foreign(scene: Scene) -> None:
    owner = scene.owner()
    heads = []
    for number in range(7):
        heads.append(await scene.conversation(owner, title=str(number)))
        if number % 2:
            scene.clock.advance(1)
    await scene.conversation(owner, temporary=True)
    await scene.conversation(scene.owner("t1", "u2"))
    await scene.conversation(scene.owner("t2", "u1"))
    await scene.conversations.delete(owner, heads[3].id, now=scene.clock.now())
    wanted = [head.title for head in sorted(heads, key=lambda one: (one.updated_at, one.id), reverse=True) if head != heads[3]]
    for limit in (1, 2, 4, 6, 100):
        seen: list[str] = []
        cursor = None
        while True:
            page = await scene.conversations.page(owner, limit=limit, after=cursor)
            assert len(page.conversations) <= limit
            seen += [head.title for head in page.conversations]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == wanted


@pytest.mark.parametrize("cursor", ["", "x", "é", "a" * 10_000, "MTIz", base64.b64encode(b"1.\xff").decode(), "-1", "=", "MS5h=="])
async def test_a_cursor_that_is_not_ours_is_refused(scene: Scene, cursor: str) -> None:
    with pytest.raises(BadCursor):
        await scene.conversations.page(scene.owner(), limit=5, after=cursor)


async def test_a_turn_brings_its_conversation_to_the_top(scene: Scene) -> None:
    owner = scene.owner()
    first = await scene.conversation(owner)
    scene.clock.advance(1)
    await scene.conversation(owner)
    scene.clock.advance(1)
    await scene.send(owner, first.id)
    page = await scene.conversations.page(owner, limit=9, after=None)
    assert page.conversations[0].id == first.id
    assert page.conversations[0].updated_at == scene.clock.now()


async def test_updates_change_only_what_they_name_and_raise_the_version(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="old")
    scene.clock.advance(1)
    now = scene.clock.now()
    renamed = await scene.conversations.update(owner, head.id, ConversationPatch(title="new", if_version=1), now=now)
    assert renamed == replace(head, title="new", title_source=TitleSource.USER, version=2, updated_at=now)
    flags = await scene.conversations.update(owner, head.id, ConversationPatch(pinned=True, archived=True, model="m"), now=now)
    assert flags == replace(renamed, pinned=True, archived=True, model="m", version=3)
    assert await scene.conversations.get(owner, head.id) == flags
    with pytest.raises(StaleVersion) as stale:
        await scene.conversations.update(owner, head.id, ConversationPatch(title="lost", if_version=2), now=now)
    assert stale.value.current_version == 3
    assert await scene.conversations.get(owner, head.id) == flags


async def test_moving_the_leaf_is_not_activity_and_needs_a_message_of_the_conversation(scene: Scene) -> None:
    owner = scene.owner()
    head, other = await scene.conversation(owner), await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    foreign = await scene.exchange(owner, other.id)
    before = await scene.conversations.get(owner, head.id)
    scene.clock.advance(60)
    patch = ConversationPatch(current_leaf_id=turn.user_message_id)
    after = await scene.conversations.update(owner, head.id, patch, now=scene.clock.now())
    assert after == replace(before, current_leaf_id=turn.user_message_id, version=before.version + 1)
    for unknown in (foreign.message_id, MessageId("msg_unknown")):
        with pytest.raises(NotFound):
            await scene.conversations.update(owner, head.id, ConversationPatch(current_leaf_id=unknown), now=scene.clock.now())
    assert await scene.conversations.get(owner, head.id) == after


async def test_time_that_runs_backwards_leaves_the_order_alone(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    earlier = head.updated_at - timedelta(hours=1)
    changed = await scene.conversations.update(owner, head.id, ConversationPatch(title="x"), now=earlier)
    assert changed.updated_at == head.updated_at


async def test_deleting_names_the_generations_to_stop_and_flags_them(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    done = await scene.exchange(owner, head.id)
    queued = await scene.send(owner, head.id)
    running = await scene.generations.accept(scene.turn(owner, head.id, RegenerateUnder(done.user_message_id or MessageId(""))))
    lease = scene.clock.now() + scene.leases
    claimed = await scene.generations.claim(running.generation_id, now=scene.clock.now(), lease_until=lease)
    assert claimed is not None
    stopped = await scene.conversations.delete(owner, head.id, now=scene.clock.now())
    assert stopped == (queued.generation_id, running.generation_id)
    assert await scene.generations.heartbeat(running.generation_id, claimed.epoch, lease_until=lease) is True
    with pytest.raises(NotFound):
        await scene.conversations.delete(owner, head.id, now=scene.clock.now())


async def test_an_empty_conversation_has_an_empty_path(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    page = await scene.conversations.path(owner, head.id, leaf=None, limit=9, before=None)
    assert (page.messages, dict(page.siblings), page.next_cursor) == ((), {}, None)
    assert await scene.conversations.tree(owner, head.id) == ()


async def test_paths_are_paged_from_the_leaf_upwards(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    ids: list[MessageId] = []
    for number in range(4):
        turn = await scene.exchange(owner, head.id, f"question {number}")
        ids += [turn.user_message_id or MessageId(""), turn.message_id]
    before: MessageId | None = None
    seen: list[MessageId] = []
    for expected in (3, 3, 2):
        page = await scene.conversations.path(owner, head.id, leaf=None, limit=3, before=before)
        assert len(page.messages) == expected
        assert set(page.siblings) == {message.id for message in page.messages}
        seen = [message.id for message in page.messages] + seen
        before = page.next_cursor
    assert before is None
    assert seen == ids
    assert [message.id for message in await scene.conversations.branch(owner, head.id, ids[5], last=9)] == ids[:6]
    assert [message.id for message in await scene.conversations.branch(owner, head.id, ids[5], last=2)] == ids[4:6]
    assert await scene.conversations.branch_ids(owner, head.id, ids[5]) == tuple(ids[:6])
    assert [message.id for message in await scene.conversations.texts(owner, head.id, [ids[4], ids[0]])] == [ids[4], ids[0]]
    roles = [message.role for message in await scene.conversations.branch(owner, head.id, ids[-1], last=9)]
    assert roles == [Role.USER, Role.ASSISTANT] * 4


async def test_the_default_path_goes_on_to_the_newest_descendant_of_the_leaf(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id, "first")
    second = await scene.exchange(owner, head.id, "second")
    edited = await scene.exchange(owner, head.id, "second, edited", parent=first.message_id)
    other_root = await scene.exchange(owner, head.id, "another start", parent=None)
    await scene.conversations.update(owner, head.id, ConversationPatch(current_leaf_id=first.message_id), now=scene.clock.now())
    page = await scene.conversations.path(owner, head.id, leaf=None, limit=9, before=None)
    assert [message.id for message in page.messages] == [
        first.user_message_id,
        first.message_id,
        edited.user_message_id,
        edited.message_id,
    ]
    assert page.siblings[page.messages[0].id] == (first.user_message_id, other_root.user_message_id)
    assert page.siblings[page.messages[1].id] == (first.message_id,)
    assert page.siblings[page.messages[2].id] == (second.user_message_id, edited.user_message_id)
    exact = await scene.conversations.path(owner, head.id, leaf=first.message_id, limit=9, before=None)
    assert [message.id for message in exact.messages] == [first.user_message_id, first.message_id]
    with pytest.raises(NotFound):
        await scene.conversations.path(owner, head.id, leaf=MessageId("msg_unknown"), limit=9, before=None)
    with pytest.raises(NotFound):
        await scene.conversations.path(owner, head.id, leaf=None, limit=9, before=MessageId("msg_unknown"))


async def test_the_tree_has_every_node_in_order_of_creation(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    first = await scene.exchange(owner, head.id)
    again = await scene.generations.accept(scene.turn(owner, head.id, RegenerateUnder(first.user_message_id or MessageId(""))))
    nodes = await scene.conversations.tree(owner, head.id)
    assert [(node.id, node.parent_id, node.status.value) for node in nodes] == [
        (first.user_message_id, None, "complete"),
        (first.message_id, first.user_message_id, "complete"),
        (again.message_id, first.user_message_id, "streaming"),
    ]
    assert nodes[0].created_at == from_ms(1_767_225_600_000)


async def test_feedback_is_for_answers_and_may_be_replaced(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.exchange(owner, head.id)
    now = scene.clock.now()
    for feedback in (Feedback(1), Feedback(-1, ("wrong", "rude"), "no"), Feedback(0), Feedback(0)):
        await scene.conversations.put_feedback(owner, turn.message_id, feedback, now=now)
        page = await scene.conversations.path(owner, head.id, leaf=None, limit=9, before=None)
        assert dict(page.ratings) == ({turn.message_id: feedback.rating} if feedback.rating else {})
    with pytest.raises(InvalidRequest):
        await scene.conversations.put_feedback(owner, turn.user_message_id or MessageId(""), Feedback(1), now=now)
