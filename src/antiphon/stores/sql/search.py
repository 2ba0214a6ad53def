"""The search index: a document is a conversation's title or a message's text, and its number grows with time.

How texts are found differs from database to database (``search_sqlite``, ``search_postgres``); what is written when is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import sqlalchemy as sa

from antiphon.core.ids import ConversationId, MessageId, TenantId, UserId
from antiphon.core.messages import MessageStatus
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.search_text import Candidate
from antiphon.stores.sql.base import across_tenants
from antiphon.stores.sql.search_postgres import PostgresIndex
from antiphon.stores.sql.search_sqlite import SqliteIndex
from antiphon.stores.sql.tables import conversations, messages

Text = tuple[MessageId | None, str]
"""A message's text, or with ``None`` the conversation's title."""


class SearchIndex(Protocol):
    def create(self, tx: sa.Connection) -> None:
        """Make the empty index."""
        ...

    def add(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId, texts: Sequence[Text]) -> None:
        """Put in texts that are not empty and were not there, at least one, in that order."""
        ...

    def take(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId, text: Text) -> None:
        """Take out a text that was put in."""
        ...

    def drop_conversation(self, tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> None:
        """Take out a conversation's title and texts; they are still in their tables."""
        ...

    def find(self, tx: sa.Connection, owner: Owner, terms: Sequence[str], start: int | None) -> list[Candidate]:
        """The newest ``SEARCH_WINDOW`` documents up to number ``start`` that hold every term, newest first."""
        ...

    def tidy(self, tx: sa.Connection, pages: int) -> bool:
        """Rewrite about ``pages`` pages, so that what was taken out leaves the files; returns whether there is more to do."""
        ...


_INDEXES: Mapping[str, SearchIndex] = {"sqlite": SqliteIndex(), "postgresql": PostgresIndex()}


def create_index(tx: sa.Connection) -> None:
    """Make the empty index."""
    _of(tx).create(tx)


def index_everything(tx: sa.Connection) -> None:
    """Index what a database without documents holds, oldest first."""
    texts = (
        sa.select(conversations.c.tenant_id, conversations.c.user_id, messages.c.conversation_id, messages.c.id, messages.c.content)
        .join(
            conversations,
            sa.and_(conversations.c.tenant_id == messages.c.tenant_id, conversations.c.id == messages.c.conversation_id),
        )
        .where(conversations.c.temporary == 0, messages.c.status != MessageStatus.STREAMING.value)
        .order_by(messages.c.created_at, messages.c.id)
    )
    for row in tx.execute(across_tenants(texts, "search_index")):
        put(tx, Owner(TenantId(row.tenant_id), UserId(row.user_id)), row.conversation_id, row.id, "", row.content)
    titles = sa.select(conversations.c.tenant_id, conversations.c.user_id, conversations.c.id, conversations.c.title).where(
        conversations.c.temporary == 0
    )
    for row in tx.execute(across_tenants(titles, "search_index")):
        put(tx, Owner(TenantId(row.tenant_id), UserId(row.user_id)), row.id, None, "", row.title)


def put(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_id: MessageId | None, before: str, after: str) -> None:
    """The text of a message, or the title of a conversation, changes from ``before`` to ``after``; empty means there is none."""
    if before == after:
        return
    if before:
        _of(tx).take(tx, owner, conversation_id, (message_id, before))
    if after:
        _of(tx).add(tx, owner, conversation_id, [(message_id, after)])


def add(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, texts: Sequence[Text]) -> None:
    """Index new texts of messages, and the title of a conversation that had none (its id is ``None``), in that order; not empty ones."""
    named = [(message_id, text) for message_id, text in texts if text]
    if named:
        _of(tx).add(tx, owner, conversation_id, named)


def drop_conversation(tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> None:
    """Take a conversation's title and texts out; they are still in their tables."""
    _of(tx).drop_conversation(tx, owner, conversation_id)


def find(tx: sa.Connection, owner: Owner, terms: Sequence[str], start: int | None) -> list[Candidate]:
    """The newest ``SEARCH_WINDOW`` documents up to number ``start`` that hold every term, newest first."""
    return _of(tx).find(tx, owner, terms, start)


def tidy(tx: sa.Connection, pages: int) -> bool:
    """Rewrite about ``pages`` pages of the index, so that what was taken out leaves the file; returns whether there is more to do."""
    return _of(tx).tidy(tx, pages)


def _of(tx: sa.Connection) -> SearchIndex:
    return _INDEXES[tx.dialect.name]
