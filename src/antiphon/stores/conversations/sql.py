"""Conversations on SQL. The tree's shape is read light and walked in Python; only a page's messages are read whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from antiphon.core.clock import to_ms
from antiphon.core.errors import Conflict, FieldFault, InvalidRequest, NotFound
from antiphon.core.ids import ConversationId, GenerationId, MessageId
from antiphon.core.messages import Conversation, Message, Role, TreeNode
from antiphon.stores.conversations.base import ConversationPage, ConversationPatch, Feedback, Owner, PathPage
from antiphon.stores.conversations.head import patched
from antiphon.stores.conversations.paging import cursor_of, parse_page_cursor, position_of
from antiphon.stores.conversations.tree import ConversationTree
from antiphon.stores.sql import rows
from antiphon.stores.sql.base import Database, changed_values
from antiphon.stores.sql.tables import conversations, feedback, generations, messages

_IDS_PER_STATEMENT = 500


class SqlConversations:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, conversation: Conversation) -> None:
        try:
            await self._db.write(lambda tx: tx.execute(conversations.insert().values(rows.conversation_values(conversation))))
        except IntegrityError as error:
            raise Conflict from error

    async def get(self, owner: Owner, conversation_id: ConversationId) -> Conversation:
        return await self._db.read(lambda tx: select_head(tx, owner, conversation_id))

    async def page(self, owner: Owner, *, limit: int, after: str | None) -> ConversationPage:
        start = None if after is None else parse_page_cursor(after)
        listed = (
            sa.select(conversations)
            .where(*_owned(owner), conversations.c.temporary == 0)
            .order_by(conversations.c.updated_at.desc(), conversations.c.id.desc())
            .limit(limit + 1)
        )
        if start is not None:
            position = sa.tuple_(conversations.c.updated_at, conversations.c.id)
            listed = listed.where(position < (start.updated_ms, start.conversation_id))
        found = await self._db.read(lambda tx: tx.execute(listed).all())
        page = tuple(rows.conversation_of(row) for row in found[:limit])
        return ConversationPage(page, cursor_of(position_of(page[-1])) if len(found) > limit else None)

    async def update(self, owner: Owner, conversation_id: ConversationId, patch: ConversationPatch, *, now: datetime) -> Conversation:
        def change(tx: sa.Connection) -> Conversation:
            head = select_head(tx, owner, conversation_id, lock=True)
            changed = patched(head, patch, now=now)
            if patch.current_leaf_id is not None:
                select_message(tx, owner, conversation_id, patch.current_leaf_id)
            update_head(tx, head, changed)
            return changed

        return await self._db.write(change)

    async def delete(self, owner: Owner, conversation_id: ConversationId, *, now: datetime) -> tuple[GenerationId, ...]:
        def hide(tx: sa.Connection) -> tuple[GenerationId, ...]:
            select_head(tx, owner, conversation_id, lock=True)
            tx.execute(
                conversations.update()
                .where(conversations.c.tenant_id == owner.tenant_id, conversations.c.id == conversation_id)
                .values(deleted_at=to_ms(now))
            )
            still_open = (
                generations.c.tenant_id == owner.tenant_id,
                generations.c.conversation_id == conversation_id,
                generations.c.status.in_(["queued", "running"]),
            )
            in_order = sa.select(generations.c.id).where(*still_open).order_by(generations.c.created_at, generations.c.id)
            running = tuple(tx.execute(in_order).scalars())
            if running:
                asked = sa.func.coalesce(generations.c.cancel_requested_at, to_ms(now))
                tx.execute(generations.update().where(*still_open).values(cancel_requested_at=asked))
            return running

        return await self._db.write(hide)

    async def path(
        self, owner: Owner, conversation_id: ConversationId, *, leaf: MessageId | None, limit: int, before: MessageId | None
    ) -> PathPage:
        def load(tx: sa.Connection) -> PathPage:
            head = select_head(tx, owner, conversation_id)
            window = select_tree(tx, owner, conversation_id).window(head, leaf=leaf, limit=limit, before=before)
            return PathPage(_select_messages(tx, owner, conversation_id, window.message_ids), window.siblings, window.next_cursor)

        return await self._db.read(load)

    async def branch(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[Message, ...]:
        def load(tx: sa.Connection) -> tuple[Message, ...]:
            select_head(tx, owner, conversation_id)
            return _select_messages(tx, owner, conversation_id, select_tree(tx, owner, conversation_id).branch(leaf))

        return await self._db.read(load)

    async def tree(self, owner: Owner, conversation_id: ConversationId) -> tuple[TreeNode, ...]:
        def load(tx: sa.Connection) -> tuple[TreeNode, ...]:
            select_head(tx, owner, conversation_id)
            return select_tree(tx, owner, conversation_id).nodes

        return await self._db.read(load)

    async def message(self, owner: Owner, message_id: MessageId) -> Message:
        return await self._db.read(lambda tx: _select_owned_message(tx, owner, message_id))

    async def put_feedback(self, owner: Owner, message_id: MessageId, feedback: Feedback, *, now: datetime) -> None:
        def put(tx: sa.Connection) -> None:
            message = _select_owned_message(tx, owner, message_id)
            if message.role is not Role.ASSISTANT:
                raise InvalidRequest([FieldFault("message_id", "Only answers take feedback.")])
            _replace_feedback(tx, owner, message, feedback, now)

        await self._db.write(put)


def select_head(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, *, lock: bool = False) -> Conversation:
    """The owner's living conversation; raises ``NotFound``. ``lock`` holds its row, on a database that locks rows."""
    query = sa.select(conversations).where(*_owned(owner), conversations.c.id == conversation_id)
    row = tx.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound
    return rows.conversation_of(row)


def update_head(tx: sa.Connection, before: Conversation, after: Conversation) -> None:
    """Write the columns that differ."""
    values = changed_values(rows.conversation_values(before), rows.conversation_values(after))
    tx.execute(conversations.update().where(conversations.c.tenant_id == after.tenant_id, conversations.c.id == after.id).values(values))


def select_message(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_id: MessageId) -> Message:
    """A message of that conversation, whose owner has been checked; raises ``NotFound``."""
    query = sa.select(messages).where(*_in_conversation(owner, conversation_id), messages.c.id == message_id)
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound
    return rows.message_of(row)


def select_tree(tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> ConversationTree:
    """The shape of the whole conversation, read from one index."""
    columns = (messages.c.id, messages.c.parent_id, messages.c.role, messages.c.status, messages.c.created_at)
    found = tx.execute(sa.select(*columns).where(*_in_conversation(owner, conversation_id)))
    return ConversationTree(rows.node_of(row) for row in found)


def has_children(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_id: MessageId) -> bool:
    query = sa.select(sa.literal(1)).where(*_in_conversation(owner, conversation_id), messages.c.parent_id == message_id).limit(1)
    return tx.execute(query).first() is not None


def _select_messages(
    tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_ids: Sequence[MessageId]
) -> tuple[Message, ...]:
    """Those messages, in that order."""
    found: dict[MessageId, Message] = {}
    for start in range(0, len(message_ids), _IDS_PER_STATEMENT):
        some = message_ids[start : start + _IDS_PER_STATEMENT]
        for row in tx.execute(sa.select(messages).where(*_in_conversation(owner, conversation_id), messages.c.id.in_(some))):
            message = rows.message_of(row)
            found[message.id] = message
    return tuple(found[message_id] for message_id in message_ids)


def _select_owned_message(tx: sa.Connection, owner: Owner, message_id: MessageId) -> Message:
    same_conversation = sa.and_(
        conversations.c.tenant_id == messages.c.tenant_id, conversations.c.id == messages.c.conversation_id, *_owned(owner)
    )
    query = (
        sa.select(messages)
        .join(conversations, same_conversation)
        .where(messages.c.tenant_id == owner.tenant_id, messages.c.id == message_id)
    )
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound
    return rows.message_of(row)


def _replace_feedback(tx: sa.Connection, owner: Owner, message: Message, given: Feedback, now: datetime) -> None:
    tx.execute(
        feedback.delete().where(
            feedback.c.tenant_id == owner.tenant_id, feedback.c.user_id == owner.user_id, feedback.c.message_id == message.id
        )
    )
    if given.rating == 0:
        return
    tx.execute(
        feedback.insert().values(
            tenant_id=owner.tenant_id,
            user_id=owner.user_id,
            conversation_id=message.conversation_id,
            message_id=message.id,
            rating=given.rating,
            reasons=msgspec.json.encode(given.reasons).decode(),
            comment=given.comment,
            updated_at=to_ms(now),
        )
    )


def _owned(owner: Owner) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        conversations.c.tenant_id == owner.tenant_id,
        conversations.c.user_id == owner.user_id,
        conversations.c.deleted_at.is_(None),
    )


def _in_conversation(owner: Owner, conversation_id: ConversationId) -> tuple[sa.ColumnElement[bool], ...]:
    return messages.c.tenant_id == owner.tenant_id, messages.c.conversation_id == conversation_id
