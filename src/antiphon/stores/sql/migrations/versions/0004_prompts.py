"""What prompts are made of: records, reasoning, summaries, preambles, counts; users' instructions and memories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import NUMBER, TEXT

revision = "0004"
down_revision = "0003"

_MESSAGE = ["messages.tenant_id", "messages.conversation_id", "messages.id"]


def upgrade() -> None:
    for column in ("counted_by", "reasoning", "prompt"):
        op.add_column("messages", sa.Column(column, TEXT))
    _make_summaries()
    _make_preambles()
    _make_token_counts()
    _make_personal_texts()


def _make_summaries() -> None:
    op.create_table(
        "summaries",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("through_message_id", TEXT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "through_message_id"),
        sa.ForeignKeyConstraint(["tenant_id", "conversation_id", "through_message_id"], _MESSAGE),
        sqlite_strict=True,
    )


def _make_preambles() -> None:
    op.create_table(
        "preambles",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("instructions", TEXT, nullable=False),
        sa.Column("memory", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "digest"),
        sa.ForeignKeyConstraint(["tenant_id", "conversation_id"], ["conversations.tenant_id", "conversations.id"]),
        sqlite_strict=True,
    )


def _make_token_counts() -> None:
    op.create_table(
        "token_counts",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "model", "message_id"),
        sa.ForeignKeyConstraint(["tenant_id", "conversation_id", "message_id"], _MESSAGE),
        sqlite_strict=True,
    )


def _make_personal_texts() -> None:
    op.create_table(
        "instructions",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "user_id"),
        sqlite_strict=True,
    )
    op.create_table(
        "memories",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "user_id", "id"),
        sqlite_strict=True,
    )
