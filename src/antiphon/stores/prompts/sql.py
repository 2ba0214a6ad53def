"""Summaries, preambles and counts on SQL."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.prompts import Preamble, Summary
from antiphon.stores.conversations.base import Owner
from antiphon.stores.sql.base import Database, Value
from antiphon.stores.sql.prepared import Prepared, matching
from antiphon.stores.sql.tables import preambles, summaries, token_counts
from antiphon.stores.sql.trees import select_head, select_message

_select_summaries = Prepared(sa.select(summaries).where(*matching(summaries, "tenant_id", "conversation_id")))
_select_summary = Prepared(sa.select(summaries.c.source).where(*matching(summaries, "tenant_id", "conversation_id", "through_message_id")))
_insert_summary = Prepared(summaries.insert())
_select_preamble = Prepared(sa.select(preambles).where(*matching(preambles, "tenant_id", "conversation_id", "digest")))
_insert_preamble = Prepared(preambles.insert())
_select_counts = Prepared(
    sa.select(token_counts.c.message_id, token_counts.c.tokens).where(*matching(token_counts, "tenant_id", "conversation_id", "model"))
)
_insert_count = Prepared(token_counts.insert())


class SqlPrompts:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def summaries(self, owner: Owner, conversation_id: ConversationId) -> tuple[Summary, ...]:
        def load(tx: sa.Connection) -> tuple[Summary, ...]:
            select_head(tx, owner, conversation_id)
            found = _select_summaries.run(tx, {"tenant_id": owner.tenant_id, "conversation_id": conversation_id})
            return tuple(
                Summary(row.conversation_id, row.through_message_id, row.text, row.source, from_ms(row.created_at)) for row in found
            )

        return await self._db.read(load)

    async def add_summary(self, owner: Owner, summary: Summary) -> None:
        def add(tx: sa.Connection) -> None:
            select_head(tx, owner, summary.conversation_id, lock=True)
            select_message(tx, owner, summary.conversation_id, summary.through)
            put_summary(tx, owner, summary)

        await self._db.write(add)

    async def preamble(self, owner: Owner, conversation_id: ConversationId, digest: str) -> Preamble | None:
        def load(tx: sa.Connection) -> Preamble | None:
            select_head(tx, owner, conversation_id)
            asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "digest": digest}
            row = _select_preamble.run(tx, asked).one_or_none()
            return None if row is None else Preamble(row.digest, row.instructions, row.memory)

        return await self._db.read(load)

    async def counts(self, owner: Owner, conversation_id: ConversationId, model: str) -> Mapping[MessageId, int]:
        def load(tx: sa.Connection) -> dict[MessageId, int]:
            select_head(tx, owner, conversation_id)
            asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "model": model}
            return {row.message_id: row.tokens for row in _select_counts.run(tx, asked)}

        return await self._db.read(load)

    async def add_counts(self, owner: Owner, conversation_id: ConversationId, model: str, counts: Mapping[MessageId, int]) -> None:
        def add(tx: sa.Connection) -> None:
            select_head(tx, owner, conversation_id, lock=True)
            place = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "model": model}
            known = {row.message_id for row in _select_counts.run(tx, place)}
            for message_id, tokens in counts.items():
                if message_id not in known:
                    select_message(tx, owner, conversation_id, message_id)
                    _insert_count.run(tx, {**place, "message_id": message_id, "tokens": tokens})

        await self._db.write(add, durable=False)


def put_summary(tx: sa.Connection, owner: Owner, summary: Summary) -> None:
    """Insert a summary unless there is one through that message; its conversation and message have been checked."""
    place: dict[str, Value] = {
        "tenant_id": owner.tenant_id,
        "conversation_id": summary.conversation_id,
        "through_message_id": summary.through,
    }
    if _select_summary.run(tx, place).first() is None:
        _insert_summary.run(tx, {**place, "text": summary.text, "source": summary.source, "created_at": to_ms(summary.created_at)})


def put_preamble(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, preamble: Preamble) -> None:
    """Insert a preamble unless the conversation has it."""
    place: dict[str, Value] = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "digest": preamble.digest}
    if _select_preamble.run(tx, place).first() is None:
        _insert_preamble.run(tx, {**place, "instructions": preamble.instructions, "memory": preamble.memory})
