"""Transfers on SQL: every statement names its tenant, every act happens whole, and nothing is left when the rows go."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from antiphon.core.clock import ManualClock
from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import IdKind, MessageId
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.sql.postgres import PostgresDatabase
from antiphon.stores.sql.sqlite import SqliteDatabase
from antiphon.stores.sql.tables import conversations, feedback, message_extras, messages, origins
from antiphon.stores.transfers.base import Origin
from antiphon.stores.transfers.sql import SqlTransfers
from tests.contracts.test_transfers import ME, Stores
from tests.ids import CountingIds
from tests.stores.test_every_statement_may_fail import contents, failing_at
from tests.stores.test_tenant_in_every_statement import statements_watched


@pytest.fixture
def stores(db: SqliteDatabase, clock: ManualClock, ids: CountingIds) -> Stores:
    return Stores(SqlConversations(db), SqlTransfers(db), clock, ids)


async def test_every_statement_names_its_tenant(stores: Stores) -> None:
    used: set[str] = set()
    refused: list[str] = []
    with statements_watched(used, refused):
        for _ in range(2):
            await stores.transfers.import_conversation(stores.whole(Origin("chatgpt", "c1")))
        ours = stores.whole(Origin("antiphon", "conv_1"))
        await stores.transfers.import_conversation(ours)
        await stores.transfers.whole(ME, ours.head.id)
    assert refused == []
    assert used <= {"search_index"}


async def test_an_import_happens_whole_or_not_at_all(db: SqliteDatabase, stores: Stores) -> None:
    first = stores.whole(Origin("chatgpt", "c1"))
    await stores.transfers.import_conversation(first)
    await stores.conversations.delete(ME, first.head.id, now=stores.clock.now())
    again = stores.whole(Origin("chatgpt", "c1"))
    before = await contents(db, "")
    for number in range(1, 60):
        with failing_at(number):
            try:
                await stores.transfers.import_conversation(again)
            except StoreUnavailable:
                pass
            else:
                break
        assert await contents(db, "") == before
    else:
        pytest.fail("the act has more statements than this test expects")
    assert number > 10
    assert await stores.transfers.whole(ME, again.head.id) == again


async def test_what_came_along_goes_with_its_conversation(db: SqliteDatabase, stores: Stores) -> None:
    given = stores.whole(Origin("chatgpt", "c1"))
    await stores.transfers.import_conversation(given)

    def remove(tx: sa.Connection) -> None:
        tx.exec_driver_sql("DELETE FROM search_docs")
        for table in (feedback, messages):
            if table is messages:
                tx.execute(messages.delete().where(messages.c.parent_id.is_not(None)))
            tx.execute(table.delete())
        tx.execute(conversations.delete())

    await db.write(remove)
    kept = await contents(db, "")
    assert kept[origins.name] == []
    assert kept[message_extras.name] == []


@pytest.mark.slow
async def test_postgresql_takes_a_conversation_of_very_many_messages(
    postgres: PostgresDatabase, clock: ManualClock, ids: CountingIds
) -> None:
    """A call has twenty seconds there. One that looked for each parent through the whole conversation would need hours."""
    stores = Stores(SqlConversations(postgres), SqlTransfers(postgres), clock, ids)
    small = stores.whole(Origin("chatgpt", "c1"))
    first = small.messages[0]
    long = [replace(first, id=MessageId(ids.new(IdKind.MESSAGE))) for _ in range(60_000)]
    chain = tuple(replace(one, parent_id=before.id) for before, one in zip((first, *long), long, strict=False))
    whole = replace(small, messages=(*small.messages, *chain))
    assert await stores.transfers.import_conversation(whole) is None
    assert len((await stores.transfers.whole(ME, whole.head.id)).messages) == 60_003
