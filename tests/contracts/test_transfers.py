"""The contract of transfers, on every driver."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, IdKind, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation, Message, MessageStatus, Role, TitleSource
from antiphon.stores.conversations.base import Conversations, Feedback, Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.memory import MemoryState
from antiphon.stores.sql.database import SqlDatabase
from antiphon.stores.transfers.base import OUR_SOURCE, Origin, Transfers, WholeConversation
from antiphon.stores.transfers.memory import MemoryTransfers
from antiphon.stores.transfers.sql import SqlTransfers
from tests.ids import CountingIds

ME = Owner(TenantId("tenant_1"), UserId("user_1"))
YOU = Owner(TenantId("tenant_1"), UserId("user_2"))
ELSEWHERE = Owner(TenantId("tenant_2"), UserId("user_1"))


@dataclass
class Stores:
    conversations: Conversations
    transfers: Transfers
    clock: ManualClock
    ids: CountingIds

    def whole(self, origin: Origin, owner: Owner = ME, *, title: str = "A title") -> WholeConversation:
        conversation_id = ConversationId(self.ids.new(IdKind.CONVERSATION))
        now = self.clock.now()
        ids = [MessageId(self.ids.new(IdKind.MESSAGE)) for _ in range(3)]
        messages = (
            Message(ids[0], conversation_id, None, Role.USER, "a question", MessageStatus.COMPLETE, now),
            Message(ids[1], conversation_id, ids[0], Role.ASSISTANT, "an answer 全部", MessageStatus.COMPLETE, now, model="gpt-4"),
            Message(ids[2], conversation_id, ids[0], Role.ASSISTANT, "another", MessageStatus.INTERRUPTED, now),
        )
        head = Conversation(
            conversation_id,
            owner.tenant_id,
            owner.user_id,
            title,
            "small",
            ids[1],
            1,
            True,
            False,
            False,
            now,
            now,
            TitleSource.USER,
            "work",
        )
        return WholeConversation(head, messages, origin, '{"x":1}', {ids[1]: '{"y":2}'}, {ids[1]: Feedback(-1, ("wrong", "rude"), "no")})


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, clock: ManualClock, ids: CountingIds) -> Stores:
    if request.param == "memory":
        state = MemoryState()
        return Stores(MemoryConversations(state), MemoryTransfers(state), clock, ids)
    db: SqlDatabase = request.getfixturevalue(request.param)
    return Stores(SqlConversations(db), SqlTransfers(db), clock, ids)


async def test_what_goes_in_comes_out(stores: Stores) -> None:
    given = stores.whole(Origin("chatgpt", "c1"))
    assert await stores.transfers.import_conversation(given) is None
    assert await stores.transfers.whole(ME, given.head.id) == given
    assert await stores.conversations.get(ME, given.head.id) == given.head
    path = await stores.conversations.path(ME, given.head.id, leaf=None, limit=9, before=None)
    assert path.messages == given.messages[:2]
    for stranger in (YOU, ELSEWHERE):
        with pytest.raises(NotFound):
            await stores.transfers.whole(stranger, given.head.id)


async def test_an_origin_is_unique_for_its_owner(stores: Stores) -> None:
    first = stores.whole(Origin("chatgpt", "c1"))
    await stores.transfers.import_conversation(first)
    again = stores.whole(Origin("chatgpt", "c1"))
    assert await stores.transfers.import_conversation(again) == first.head.id
    with pytest.raises(NotFound):
        await stores.conversations.get(ME, again.head.id)
    for owner in (YOU, ELSEWHERE):
        assert await stores.transfers.import_conversation(stores.whole(Origin("chatgpt", "c1"), owner)) is None
    assert await stores.transfers.import_conversation(stores.whole(Origin("openwebui", "c1"))) is None


async def test_ten_at_once_are_one(stores: Stores) -> None:
    given = [stores.whole(Origin("chatgpt", "c1")) for _ in range(10)]
    found = await asyncio.gather(*(stores.transfers.import_conversation(whole) for whole in given))
    assert found.count(None) == 1
    assert len(set(found)) == 2
    assert len((await stores.conversations.page(ME, limit=30, after=None)).conversations) == 1


async def test_what_was_deleted_may_come_back(stores: Stores) -> None:
    first = stores.whole(Origin("chatgpt", "c1"))
    await stores.transfers.import_conversation(first)
    await stores.conversations.delete(ME, first.head.id, now=stores.clock.now())
    again = stores.whole(Origin("chatgpt", "c1"))
    assert await stores.transfers.import_conversation(again) is None
    assert await stores.transfers.whole(ME, again.head.id) == again


async def test_our_own_conversation_is_known_by_its_id(stores: Stores) -> None:
    here = stores.whole(Origin("chatgpt", "c1")).head
    await stores.conversations.create(replace(here, current_leaf_id=None))
    assert await stores.transfers.import_conversation(stores.whole(Origin(OUR_SOURCE, here.id))) == here.id
    assert await stores.transfers.import_conversation(stores.whole(Origin(OUR_SOURCE, here.id), YOU)) is None
    assert (await stores.transfers.whole(ME, here.id)).origin is None


async def test_what_was_imported_is_found(stores: Stores) -> None:
    given = stores.whole(Origin("chatgpt", "c1"), title="Norwegian ferries")
    await stores.transfers.import_conversation(given)
    for question, message in (("ferries", None), ("question", given.messages[0].id), ("全", given.messages[1].id)):
        hits = (await stores.conversations.search(ME, question, limit=5, after=None)).hits
        assert [(hit.conversation_id, hit.message_id) for hit in hits] == [(given.head.id, message)]
        assert (await stores.conversations.search(YOU, question, limit=5, after=None)).hits == ()
    await stores.conversations.delete(ME, given.head.id, now=stores.clock.now())
    assert (await stores.conversations.search(ME, "ferries", limit=5, after=None)).hits == ()


async def test_an_empty_one(stores: Stores) -> None:
    given = stores.whole(Origin(OUR_SOURCE, "conv_x"), title="")
    bare = WholeConversation(replace(given.head, current_leaf_id=None), (), given.origin)
    await stores.transfers.import_conversation(bare)
    assert await stores.transfers.whole(ME, bare.head.id) == bare
