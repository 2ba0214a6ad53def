"""Where imported conversations came from, and what they carried that we do not know."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "origins",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id"],
            ["conversations.tenant_id", "conversations.id"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant_id", "user_id", "source", "source_id"),
        sa.UniqueConstraint("tenant_id", "conversation_id", name="origins_conversation"),
        sqlite_strict=True,
    )
    op.create_table(
        "message_extras",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "message_id"],
            ["messages.tenant_id", "messages.conversation_id", "messages.id"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "message_id"),
        sqlite_strict=True,
    )
