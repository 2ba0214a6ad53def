"""Transfers on SQL: one transaction writes a whole conversation, its index entries included."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from antiphon.core.clock import to_ms
from antiphon.core.ids import ConversationId
from antiphon.core.messages import Conversation
from antiphon.stores.conversations.base import Feedback, Owner
from antiphon.stores.sql import rows, search
from antiphon.stores.sql.base import Database, Value
from antiphon.stores.sql.prepared import Prepared, matching
from antiphon.stores.sql.tables import conversations, feedback, message_extras, messages, origins
from antiphon.stores.sql.trees import insert_messages, select_head
from antiphon.stores.transfers.base import OUR_SOURCE, Origin, Transfers, WholeConversation
from antiphon.stores.transfers.ordering import parents_first

_UNCOUNTED_MESSAGES = 1000

_ORIGIN_KEY = ("tenant_id", "user_id", "source", "source_id")
_living_origin = Prepared(
    sa.select(conversations.c.id)
    .join(
        origins,
        sa.and_(
            origins.c.tenant_id == conversations.c.tenant_id,
            origins.c.conversation_id == conversations.c.id,
        ),
    )
    .where(*matching(origins, *_ORIGIN_KEY), conversations.c.deleted_at.is_(None))
)
_living_own = Prepared(
    sa.select(conversations.c.id).where(*matching(conversations, "tenant_id", "user_id", "id"), conversations.c.deleted_at.is_(None))
)
_drop_origin = Prepared(origins.delete().where(*matching(origins, *_ORIGIN_KEY)))
_insert_head = Prepared(
    conversations.insert(), columns=tuple(column.name for column in conversations.columns if column.name != "deleted_at")
)
_insert_origin = Prepared(origins.insert())
_insert_extra = Prepared(message_extras.insert())
_insert_feedback = Prepared(feedback.insert())
_select_messages = Prepared(sa.select(messages).where(*matching(messages, "tenant_id", "conversation_id")))
_select_origin = Prepared(sa.select(origins).where(*matching(origins, "tenant_id", "conversation_id")))
_select_extras = Prepared(sa.select(message_extras).where(*matching(message_extras, "tenant_id", "conversation_id")))
_select_feedback = Prepared(sa.select(feedback).where(*matching(feedback, "tenant_id", "user_id", "conversation_id")))


class SqlTransfers(Transfers):
    def __init__(self, db: Database) -> None:
        self._db = db

    async def import_conversation(self, whole: WholeConversation) -> ConversationId | None:
        return await self._db.write(lambda tx: _insert(tx, whole))

    async def whole(self, owner: Owner, conversation_id: ConversationId) -> WholeConversation:
        return await self._db.read(lambda tx: _select(tx, owner, conversation_id))


def _insert(tx: sa.Connection, whole: WholeConversation) -> ConversationId | None:
    head, origin = whole.head, whole.origin
    assert origin is not None
    known = _find(tx, head, origin)
    if known is not None:
        return known
    owner = Owner(head.tenant_id, head.user_id)
    named = {"tenant_id": head.tenant_id, "user_id": head.user_id, "source": origin.source, "source_id": origin.source_id}
    _drop_origin.run(tx, named)
    _insert_head.run(tx, rows.conversation_values(head))
    _insert_origin.run(tx, {**named, "conversation_id": head.id, "extra": whole.extra})
    _insert_messages(tx, whole)
    search.add(tx, owner, head.id, [*((message.id, message.content) for message in whole.messages), (None, head.title)])
    place: dict[str, Value] = {"tenant_id": head.tenant_id, "conversation_id": head.id}
    for message_id, extra in whole.extras.items():
        _insert_extra.run(tx, {**place, "message_id": message_id, "extra": extra})
    for message_id, given in whole.feedback.items():
        _insert_feedback.run(tx, {**place, "user_id": head.user_id, "message_id": message_id, **_feedback_values(head, given)})
    return None


def _insert_messages(tx: sa.Connection, whole: WholeConversation) -> None:
    """Parents first. PostgreSQL, as long as it does not know how many messages a table has, looks for each one's parent through all of
    its conversation, so it counts them once some are there.
    """
    first, rest = whole.messages[:_UNCOUNTED_MESSAGES], whole.messages[_UNCOUNTED_MESSAGES:]
    if first:
        insert_messages(tx, whole.head.tenant_id, *first)
    if rest:
        if tx.dialect.name == "postgresql":
            tx.exec_driver_sql("ANALYZE messages")
        insert_messages(tx, whole.head.tenant_id, *rest)


def _find(tx: sa.Connection, head: Conversation, origin: Origin) -> ConversationId | None:
    named = {"tenant_id": head.tenant_id, "user_id": head.user_id, "source": origin.source, "source_id": origin.source_id}
    row = _living_origin.run(tx, named).one_or_none()
    if row is None and origin.source == OUR_SOURCE:
        row = _living_own.run(tx, {"tenant_id": head.tenant_id, "user_id": head.user_id, "id": origin.source_id}).one_or_none()
    return None if row is None else ConversationId(row.id)


def _feedback_values(head: Conversation, given: Feedback) -> dict[str, Value]:
    return {
        "rating": given.rating,
        "reasons": msgspec.json.encode(given.reasons).decode(),
        "comment": given.comment,
        "updated_at": to_ms(head.updated_at),
    }


def _select(tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> WholeConversation:
    head = select_head(tx, owner, conversation_id)
    place = {"tenant_id": owner.tenant_id, "user_id": owner.user_id, "conversation_id": conversation_id}
    found = _select_origin.run(tx, place).one_or_none()
    return WholeConversation(
        head=head,
        messages=parents_first(rows.message_of(row) for row in _select_messages.run(tx, place)),
        origin=None if found is None else Origin(found.source, found.source_id),
        extra="" if found is None else found.extra,
        extras={row.message_id: row.extra for row in _select_extras.run(tx, place)},
        feedback={
            row.message_id: Feedback(row.rating, msgspec.json.decode(row.reasons, type=tuple[str, ...]), row.comment)
            for row in _select_feedback.run(tx, place)
        },
    )
