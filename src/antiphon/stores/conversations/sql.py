"""Conversations on SQL. The tree's shape is read light and walked in Python; only a page's messages are read whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from antiphon.core.clock import to_ms
from antiphon.core.errors import Conflict, FieldFault, InvalidRequest
from antiphon.core.ids import ConversationId, GenerationId, MessageId
from antiphon.core.messages import Conversation, Message, Role, TreeNode
from antiphon.stores.conversations.base import (
    EVERYTHING,
    ConversationFilter,
    ConversationPage,
    ConversationPatch,
    Feedback,
    Folder,
    Owner,
    PathPage,
    SearchPage,
)
from antiphon.stores.conversations.head import patched, suggested
from antiphon.stores.conversations.paging import cursor_of, parse_page_cursor, parse_search_cursor, position_of
from antiphon.stores.conversations.search_text import page_of, terms_of
from antiphon.stores.sql import rows, search
from antiphon.stores.sql.base import Database
from antiphon.stores.sql.records import add_audit
from antiphon.stores.sql.tables import conversations, feedback
from antiphon.stores.sql.trees import (
    hide,
    select_head,
    select_last,
    select_message,
    select_messages,
    select_owned_message,
    select_page,
    select_path_ids,
    select_tree,
    update_head,
)


class SqlConversations:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, conversation: Conversation) -> None:
        def insert(tx: sa.Connection) -> None:
            tx.execute(conversations.insert(), rows.conversation_values(conversation))
            if conversation.title and not conversation.temporary:
                owner = Owner(conversation.tenant_id, conversation.user_id)
                search.put(tx, owner, conversation.id, None, "", conversation.title)

        try:
            await self._db.write(insert)
        except IntegrityError as error:
            raise Conflict from error

    async def get(self, owner: Owner, conversation_id: ConversationId) -> Conversation:
        return await self._db.read(lambda tx: select_head(tx, owner, conversation_id))

    async def page(self, owner: Owner, *, limit: int, after: str | None, only: ConversationFilter = EVERYTHING) -> ConversationPage:
        start = None if after is None else parse_page_cursor(after)
        listed = (
            sa.select(conversations)
            .where(*_owned(owner), *_chosen(only))
            .order_by(conversations.c.updated_at.desc(), conversations.c.id.desc())
            .limit(limit + 1)
        )
        if start is not None:
            position = sa.tuple_(conversations.c.updated_at, conversations.c.id)
            listed = listed.where(position < (start.updated_ms, start.conversation_id))
        found = await self._db.read(lambda tx: tx.execute(listed).all())
        page = tuple(rows.conversation_of(row) for row in found[:limit])
        return ConversationPage(page, cursor_of(position_of(page[-1])) if len(found) > limit else None)

    async def folders(self, owner: Owner) -> tuple[Folder, ...]:
        folder, count = conversations.c.folder, sa.func.count().label("conversations")
        counted = sa.select(folder, count).where(*_owned(owner), folder.is_not(None)).group_by(folder).order_by(folder)
        return tuple(Folder(row.folder, row.conversations) for row in await self._db.read(lambda tx: tx.execute(counted).all()))

    async def search(self, owner: Owner, question: str, *, limit: int, after: str | None) -> SearchPage:
        position = None if after is None else parse_search_cursor(after)
        terms = terms_of(question)
        if not terms:
            return SearchPage((), None)

        def find(tx: sa.Connection) -> SearchPage:
            window = search.find(tx, owner, terms, None if position is None else position.start)
            return page_of(terms, window, position, limit=limit)

        return await self._db.read(find)

    async def update(self, owner: Owner, conversation_id: ConversationId, patch: ConversationPatch, *, now: datetime) -> Conversation:
        def change(tx: sa.Connection) -> Conversation:
            head = select_head(tx, owner, conversation_id, lock=True)
            changed = patched(head, patch, now=now)
            if patch.current_leaf_id is not None:
                select_message(tx, owner, conversation_id, patch.current_leaf_id)
            update_head(tx, head, changed)
            return changed

        return await self._db.write(change)

    async def suggest_title(self, owner: Owner, conversation_id: ConversationId, title: str) -> Conversation:
        def name(tx: sa.Connection) -> Conversation:
            head = select_head(tx, owner, conversation_id, lock=True)
            named = suggested(head, title)
            update_head(tx, head, named)
            return named

        return await self._db.write(name)

    async def delete(self, owner: Owner, conversation_id: ConversationId, *, now: datetime) -> tuple[GenerationId, ...]:
        def end(tx: sa.Connection) -> tuple[GenerationId, ...]:
            select_head(tx, owner, conversation_id, lock=True)
            add_audit(tx, owner, "conversation.delete", conversation_id, now)
            return hide(tx, owner, conversation_id, now)

        return await self._db.write(end)

    async def delete_all(self, owner: Owner, *, now: datetime) -> tuple[GenerationId, ...]:
        def hide_all(tx: sa.Connection) -> tuple[GenerationId, ...]:
            living = tx.execute(sa.select(conversations.c.id).where(*_owned(owner))).scalars().all()
            add_audit(tx, owner, "conversations.delete_all", owner.user_id, now)
            return tuple(running for conversation_id in living for running in hide(tx, owner, conversation_id, now))

        return await self._db.write(hide_all)

    async def path(
        self, owner: Owner, conversation_id: ConversationId, *, leaf: MessageId | None, limit: int, before: MessageId | None
    ) -> PathPage:
        def load(tx: sa.Connection) -> PathPage:
            return select_page(tx, owner, select_head(tx, owner, conversation_id), leaf=leaf, limit=limit, before=before)

        return await self._db.read(load)

    async def branch(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId, *, last: int) -> tuple[Message, ...]:
        def load(tx: sa.Connection) -> tuple[Message, ...]:
            select_head(tx, owner, conversation_id)
            return select_last(tx, owner, conversation_id, leaf, last)

        return await self._db.read(load)

    async def branch_ids(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[MessageId, ...]:
        def load(tx: sa.Connection) -> tuple[MessageId, ...]:
            select_head(tx, owner, conversation_id)
            return select_path_ids(tx, owner, conversation_id, leaf)

        return await self._db.read(load)

    async def texts(self, owner: Owner, conversation_id: ConversationId, message_ids: Sequence[MessageId]) -> tuple[Message, ...]:
        def load(tx: sa.Connection) -> tuple[Message, ...]:
            select_head(tx, owner, conversation_id)
            return select_messages(tx, owner, conversation_id, message_ids)

        return await self._db.read(load)

    async def tree(self, owner: Owner, conversation_id: ConversationId) -> tuple[TreeNode, ...]:
        def load(tx: sa.Connection) -> tuple[TreeNode, ...]:
            select_head(tx, owner, conversation_id)
            return select_tree(tx, owner, conversation_id).nodes

        return await self._db.read(load)

    async def message(self, owner: Owner, message_id: MessageId) -> Message:
        return await self._db.read(lambda tx: select_owned_message(tx, owner, message_id))

    async def put_feedback(self, owner: Owner, message_id: MessageId, feedback: Feedback, *, now: datetime) -> None:
        def put(tx: sa.Connection) -> None:
            message = select_owned_message(tx, owner, message_id)
            if message.role is not Role.ASSISTANT:
                raise InvalidRequest([FieldFault("message_id", "Only answers take feedback.")])
            _replace_feedback(tx, owner, message, feedback, now)

        await self._db.write(put)


def _chosen(only: ConversationFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """Flags are written out, not bound: SQLite picks a partial index only by what it sees in the statement."""
    chosen = [conversations.c.temporary == sa.literal_column("0")]
    for column, wanted in ((conversations.c.pinned, only.pinned), (conversations.c.archived, only.archived)):
        if wanted is not None:
            chosen.append(column == sa.literal_column("1" if wanted else "0"))
    if only.folder is not None:
        chosen.append(conversations.c.folder == only.folder)
    return tuple(chosen)


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
