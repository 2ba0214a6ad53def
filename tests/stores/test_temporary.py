"""Temporary conversations: whole to their owner, nowhere in a file, gone after an hour; what they cost is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import NotFound
from antiphon.core.events import Delta, LogEntry
from antiphon.core.generation import Usage
from antiphon.orchestrator.upkeep import Temporary, Upkeep
from antiphon.stores.conversations.base import ConversationPatch, Feedback
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.custody.memory import MemoryCustody
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.temporary import TemporaryConversations, TemporaryGenerations, TemporaryLog
from tests.contracts.scene import Scene
from tests.stores.test_traces import CANARY, traces


async def test_what_a_temporary_answer_costs_is_kept_while_it_is_written(scene: Scene, clock: ManualClock) -> None:
    """A server that dies then forgets the words, and the next one bills what they had cost."""
    state, durable = MemoryState(), scene.generations
    conversations = TemporaryConversations(scene.conversations, MemoryConversations(state), state)
    generations = TemporaryGenerations(durable, MemoryGenerations(state, clock), state)
    scene = replace(scene, conversations=conversations, generations=generations)
    owner = scene.owner()
    head = await scene.conversation(owner, temporary=True)
    turn = await generations.accept(scene.turn(owner, head.id, scene.text("hello")))
    until = await generations.now() + timedelta(days=1)
    await generations.claim(turn.generation_id, now=await generations.now(), lease_until=until)
    await generations.heartbeat(turn.generation_id, 1, lease_until=until)
    assert await durable.left_usage(before=until, limit=9) == (), "nothing was computed yet"
    await generations.checkpoint(turn.generation_id, 1, text="half", seq=2, usage=Usage(9, 0, 4))
    (left,) = await durable.left_usage(before=until, limit=9)
    assert (left.generation_id, left.user_id, left.usage, left.estimated) == (turn.generation_id, owner.user_id, Usage(9, 0, 4), True)
    clock.advance(60)
    await asyncio.sleep(0.002)
    kept_at = await durable.now()
    assert len(await durable.left_usage(before=kept_at, limit=9)) == 1
    await asyncio.sleep(0.002)
    await generations.heartbeat(turn.generation_id, 1, lease_until=until)
    assert await durable.left_usage(before=kept_at, limit=9) == (), "it is alive, though it has written nothing new"
    await generations.finalise(scene.end(turn, 1, "whole"))
    assert await durable.left_usage(before=until, limit=9) == ()


async def test_no_word_of_a_temporary_conversation_reaches_a_file(
    db: SqliteDatabase, scene: Scene, clock: ManualClock, tmp_path: Path
) -> None:
    state, durable = MemoryState(), scene.generations
    conversations = TemporaryConversations(scene.conversations, MemoryConversations(state), state)
    generations = TemporaryGenerations(durable, MemoryGenerations(state, clock), state)
    log = TemporaryLog(await JournalLog.open_folder(tmp_path / "log", clock, 900), MemoryLog(clock, 900), state)
    scene = replace(scene, conversations=conversations, generations=generations)
    owner = scene.owner()
    kept = await scene.conversation(owner, title="kept")
    await scene.exchange(owner, kept.id)
    head = await scene.conversation(owner, title=f"title {CANARY}", temporary=True)

    turn = await generations.accept(scene.turn(owner, head.id, scene.text(f"{CANARY} asks"), scene.key(CANARY)))
    assert (await generations.find_replay(scene.key(CANARY), now=clock.now())) == replace(turn, replayed=True)
    assert await generations.due(now=clock.now(), limit=9) == (turn.generation_id,)
    assert await generations.count_open() == 1
    await log.open(turn.generation_id, 1)
    await log.append(turn.generation_id, [LogEntry(1, 1, Delta(f"{CANARY} answers"), (1,))])
    await scene.finish(turn, f"{CANARY} answers")
    assert (await conversations.message(owner, turn.message_id)).content == f"{CANARY} answers"
    await conversations.put_feedback(owner, turn.message_id, Feedback(1, (), CANARY), now=clock.now())
    await conversations.update(owner, head.id, ConversationPatch(title=f"new {CANARY}"), now=clock.now())
    assert len(await conversations.branch(owner, head.id, turn.message_id, last=9)) == 2
    assert [one.id for one in (await conversations.page(owner, limit=9, after=None)).conversations] == [kept.id]
    assert (await conversations.search(owner, CANARY, limit=9, after=None)).hits == ()
    for stranger in (scene.owner(user="u2"), scene.owner("t2")):
        with pytest.raises(NotFound):
            await conversations.get(stranger, head.id)

    upkeep = Upkeep(scene.custody, log, clock, purge_seconds=3600, temporary=Temporary(conversations, MemoryCustody(state)))
    await upkeep.once()
    assert (await conversations.get(owner, head.id)).temporary
    clock.advance(3601)
    await upkeep.once()
    with pytest.raises(NotFound):
        await conversations.get(owner, head.id)
    assert await log.state(turn.generation_id) is None
    assert state.messages == state.generations == state.conversations == {}
    usage = await db.read(lambda tx: tx.exec_driver_sql("SELECT dedup_key FROM outbox").scalars().all())
    assert turn.generation_id in usage
    assert await asyncio.to_thread(traces, tmp_path) == []
    await log.close()
