"""Search, folders, titles' sources, shares, retention, audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql import search
from antiphon.stores.sql.types import NUMBER, TEXT

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _change_conversations()
    op.add_column("tenants", sa.Column("retention_days", sa.Integer()))
    op.create_index("feedback_by_time", "feedback", ["tenant_id", "updated_at", "message_id"])
    op.create_index("feedback_of", "feedback", ["tenant_id", "conversation_id", "message_id"])
    _make_shares()
    _make_audit()
    _make_search()


def _change_conversations() -> None:
    op.add_column("conversations", sa.Column("title_source", TEXT, nullable=False, server_default="auto"))
    op.add_column("conversations", sa.Column("folder", TEXT))
    for name, column, chosen in (
        ("conversations_pinned", "pinned", "pinned = 1"),
        ("conversations_archived", "archived", "archived = 1"),
        ("conversations_in_folder", "folder", "folder IS NOT NULL"),
    ):
        where = sa.text(f"deleted_at IS NULL AND {chosen}")
        key = ["tenant_id", "user_id", column, "updated_at", "id"]
        op.create_index(name, "conversations", key, sqlite_where=where, postgresql_where=where)
    deleted = sa.text("deleted_at IS NOT NULL")
    op.create_index("conversations_deleted", "conversations", ["deleted_at"], sqlite_where=deleted, postgresql_where=deleted)


def _make_shares() -> None:
    op.create_table(
        "shares",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("token", TEXT, nullable=False),
        sa.Column("title", TEXT, nullable=False),
        sa.Column("messages", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
        sa.PrimaryKeyConstraint("tenant_id", "id"),
        sa.UniqueConstraint("token", name="shares_token"),
        sqlite_strict=True,
    )
    op.create_index("shares_by_user", "shares", ["tenant_id", "user_id", "id"])
    op.create_index("shares_by_conversation", "shares", ["tenant_id", "conversation_id"])


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", NUMBER, nullable=False),
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_strict=True,
    )
    op.create_index("audit_by_tenant", "audit", ["tenant_id", "id"])


def _make_search() -> None:
    op.create_table(
        "search_docs",
        sa.Column("doc", NUMBER, nullable=False),
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("message_id", TEXT),
        sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
        sa.PrimaryKeyConstraint("doc"),
        sqlite_strict=True,
    )
    op.create_index("search_docs_of", "search_docs", ["tenant_id", "conversation_id", "message_id"])
    op.create_index("search_docs_by_user", "search_docs", ["tenant_id", "user_id", "doc"])
    search.create_index(op.get_bind())
    search.index_everything(op.get_bind())
