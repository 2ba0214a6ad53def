"""The tables, in the design's words. Every row belongs to a tenant, and ``tenant_id`` leads every key: it is the sharding key.

Ids are text as on the wire; times are milliseconds since 1970 (UTC); money is decimal text; ``params``, ``usage``, ``error`` and
``prompt`` are JSON text. A conversation's user has no foreign key, because accounts are a port of their own and may live elsewhere. A
trigger, made by the first migration, refuses to change a message's ``parent_id`` or its conversation: trees cannot get cycles.
``origins`` and ``message_extras`` belong to imported conversations and go with them.
"""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.types import NUMBER, TEXT

metadata = sa.MetaData()

_Flag = sa.Integer


def _table(name: str, *parts: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *parts, sqlite_strict=True)


tenants = _table(
    "tenants",
    sa.Column("tenant_id", TEXT, primary_key=True),
    sa.Column("name", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("retention_days", sa.Integer),
    sa.UniqueConstraint("name", name="tenants_name"),
)

users = _table(
    "users",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("name", TEXT, nullable=False),
    sa.Column("role", TEXT, nullable=False),
    sa.Column("plan", TEXT, nullable=False),
    sa.Column("disabled", _Flag, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("tenant_id", "name", name="users_name"),
    sa.UniqueConstraint("id", name="users_id"),
    sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
)

conversations = _table(
    "conversations",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("title", TEXT, nullable=False),
    sa.Column("model", TEXT),
    sa.Column("current_leaf_id", TEXT),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("pinned", _Flag, nullable=False),
    sa.Column("archived", _Flag, nullable=False),
    sa.Column("temporary", _Flag, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("updated_at", NUMBER, nullable=False),
    sa.Column("deleted_at", NUMBER),
    sa.Column("title_source", TEXT, nullable=False, server_default="auto"),
    sa.Column("folder", TEXT),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
)
sa.Index(
    "conversations_listed",
    conversations.c.tenant_id,
    conversations.c.user_id,
    conversations.c.updated_at,
    conversations.c.id,
    sqlite_where=sa.and_(conversations.c.deleted_at.is_(None), conversations.c.temporary == 0),
    postgresql_where=sa.and_(conversations.c.deleted_at.is_(None), conversations.c.temporary == 0),
)


def _listed_by(name: str, column: sa.Column[object], chosen: sa.ColumnElement[bool]) -> None:
    """A small index of the conversations that a filter of the sidebar chooses, in the sidebar's order."""
    where = sa.and_(conversations.c.deleted_at.is_(None), chosen)
    key = (conversations.c.tenant_id, conversations.c.user_id, column, conversations.c.updated_at, conversations.c.id)
    sa.Index(name, *key, sqlite_where=where, postgresql_where=where)


_listed_by("conversations_pinned", conversations.c.pinned, conversations.c.pinned == 1)
_listed_by("conversations_archived", conversations.c.archived, conversations.c.archived == 1)
_listed_by("conversations_in_folder", conversations.c.folder, conversations.c.folder.is_not(None))
sa.Index(
    "conversations_deleted",
    conversations.c.deleted_at,
    sqlite_where=conversations.c.deleted_at.is_not(None),
    postgresql_where=conversations.c.deleted_at.is_not(None),
)

messages = _table(
    "messages",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("parent_id", TEXT),
    sa.Column("role", TEXT, nullable=False),
    sa.Column("status", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("model", TEXT),
    sa.Column("requested_model", TEXT),
    sa.Column("finish_reason", TEXT),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("cached_tokens", sa.Integer),
    sa.Column("output_tokens", sa.Integer),
    sa.Column("content_tokens", sa.Integer),
    sa.Column("cost", TEXT),
    sa.Column("generation_id", TEXT),
    sa.Column("error", TEXT),
    sa.Column("content", TEXT, nullable=False),
    sa.Column("counted_by", TEXT),
    sa.Column("reasoning", TEXT),
    sa.Column("prompt", TEXT),
    sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "id"),
    sa.UniqueConstraint("tenant_id", "id", name="messages_id"),
    sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
    sa.ForeignKeyConstraint(
        ["tenant_id", "conversation_id", "parent_id"], ["messages.tenant_id", "messages.conversation_id", "messages.id"]
    ),
)
sa.Index(
    "messages_tree",
    messages.c.tenant_id,
    messages.c.conversation_id,
    messages.c.parent_id,
    messages.c.created_at,
    messages.c.id,
    messages.c.role,
    messages.c.status,
)

generations = _table(
    "generations",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("key_id", TEXT),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("message_id", TEXT, nullable=False),
    sa.Column("user_message_id", TEXT),
    sa.Column("status", TEXT, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("lease_until", NUMBER),
    sa.Column("cancel_requested_at", NUMBER),
    sa.Column("plan", TEXT, nullable=False),
    sa.Column("pool", TEXT, nullable=False),
    sa.Column("model", TEXT, nullable=False),
    sa.Column("requested_model", TEXT, nullable=False),
    sa.Column("params", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("finished_at", NUMBER),
    sa.Column("finish_reason", TEXT),
    sa.Column("usage", TEXT, nullable=False),
    sa.Column("ttft_ms", sa.Integer),
    sa.Column("duration_ms", sa.Integer),
    sa.Column("error", TEXT),
    sa.Column("checkpoint_seq", sa.Integer, nullable=False),
    sa.Column("prior_text", TEXT, nullable=False),
    sa.Column("checkpoint_text", TEXT, nullable=False),
    sa.Column("route_rule", TEXT, nullable=False, server_default=""),
    sa.Column("route_reason", TEXT, nullable=False, server_default=""),
    sa.Column("band", sa.Integer),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("id", name="generations_id"),
    sa.ForeignKeyConstraint(
        ["tenant_id", "conversation_id", "message_id"], ["messages.tenant_id", "messages.conversation_id", "messages.id"]
    ),
)
sa.Index("generations_by_message", generations.c.tenant_id, generations.c.conversation_id, generations.c.message_id)
sa.Index(
    "generations_open",
    generations.c.created_at,
    generations.c.id,
    generations.c.status,
    generations.c.lease_until,
    sqlite_where=generations.c.status.in_(["queued", "running"]),
    postgresql_where=generations.c.status.in_(["queued", "running"]),
)

idempotency = _table(
    "idempotency",
    sa.Column("scope", TEXT, nullable=False),
    sa.Column("key", TEXT, nullable=False),
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("fingerprint", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("user_message_id", TEXT),
    sa.Column("message_id", TEXT, nullable=False),
    sa.Column("generation_id", TEXT, nullable=False),
    sa.Column("expires_at", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("scope", "key"),
)
sa.Index("idempotency_by_end", idempotency.c.tenant_id, idempotency.c.expires_at)

outbox = _table(
    "outbox",
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("kind", TEXT, nullable=False),
    sa.Column("dedup_key", TEXT, nullable=False),
    sa.Column("payload", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.Column("sent_at", NUMBER),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.UniqueConstraint("tenant_id", "kind", "dedup_key", name="outbox_dedup"),
)
sa.Index("outbox_unsent", outbox.c.id, sqlite_where=outbox.c.sent_at.is_(None), postgresql_where=outbox.c.sent_at.is_(None))

feedback = _table(
    "feedback",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("message_id", TEXT, nullable=False),
    sa.Column("rating", sa.Integer, nullable=False),
    sa.Column("reasons", TEXT, nullable=False),
    sa.Column("comment", TEXT, nullable=False),
    sa.Column("updated_at", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id", "message_id"),
    sa.ForeignKeyConstraint(
        ["tenant_id", "conversation_id", "message_id"], ["messages.tenant_id", "messages.conversation_id", "messages.id"]
    ),
)

origins = _table(
    "origins",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("source", TEXT, nullable=False),
    sa.Column("source_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("extra", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id", "source", "source_id"),
    sa.UniqueConstraint("tenant_id", "conversation_id", name="origins_conversation"),
    sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"], ondelete="CASCADE"),
)

message_extras = _table(
    "message_extras",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("message_id", TEXT, nullable=False),
    sa.Column("extra", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "message_id"),
    sa.ForeignKeyConstraint(
        ["tenant_id", "conversation_id", "message_id"],
        ["messages.tenant_id", "messages.conversation_id", "messages.id"],
        ondelete="CASCADE",
    ),
)

search_docs = _table(
    "search_docs",
    sa.Column("doc", NUMBER, primary_key=True),
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("message_id", TEXT),
    sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
)
sa.Index("search_docs_of", search_docs.c.tenant_id, search_docs.c.conversation_id, search_docs.c.message_id)
sa.Index("search_docs_by_user", search_docs.c.tenant_id, search_docs.c.user_id, search_docs.c.doc)

shares = _table(
    "shares",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("token", TEXT, nullable=False),
    sa.Column("title", TEXT, nullable=False),
    sa.Column("messages", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "id"),
    sa.UniqueConstraint("token", name="shares_token"),
    sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
)
sa.Index("shares_by_user", shares.c.tenant_id, shares.c.user_id, shares.c.id)
sa.Index("shares_by_conversation", shares.c.tenant_id, shares.c.conversation_id)

audit = _table(
    "audit",
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT),
    sa.Column("action", TEXT, nullable=False),
    sa.Column("subject", TEXT, nullable=False),
    sa.Column("at", NUMBER, nullable=False),
)
sa.Index("audit_by_tenant", audit.c.tenant_id, audit.c.id)
sa.Index("feedback_by_time", feedback.c.tenant_id, feedback.c.updated_at, feedback.c.message_id)
sa.Index("feedback_of", feedback.c.tenant_id, feedback.c.conversation_id, feedback.c.message_id)

summaries = _table(
    "summaries",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("through_message_id", TEXT, nullable=False),
    sa.Column("text", TEXT, nullable=False),
    sa.Column("source", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "through_message_id"),
    sa.ForeignKeyConstraint(
        ["tenant_id", "conversation_id", "through_message_id"], ["messages.tenant_id", "messages.conversation_id", "messages.id"]
    ),
)

preambles = _table(
    "preambles",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("digest", TEXT, nullable=False),
    sa.Column("instructions", TEXT, nullable=False),
    sa.Column("memory", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "digest"),
    sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
)

token_counts = _table(
    "token_counts",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("conversation_id", TEXT, nullable=False),
    sa.Column("model", TEXT, nullable=False),
    sa.Column("message_id", TEXT, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "model", "message_id"),
    sa.ForeignKeyConstraint(
        ["tenant_id", "conversation_id", "message_id"], ["messages.tenant_id", "messages.conversation_id", "messages.id"]
    ),
)

instructions = _table(
    "instructions",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("text", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id"),
)

memories = _table(
    "memories",
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False),
    sa.Column("text", TEXT, nullable=False),
    sa.Column("created_at", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "user_id", "id"),
)
