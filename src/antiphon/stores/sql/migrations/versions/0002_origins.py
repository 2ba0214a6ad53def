"""Where imported conversations came from, and what they carried that we do not know."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import TEXT

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "origins",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("source_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("extra", TEXT, nullable=False),
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
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("extra", TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "conversation_id", "message_id"],
            ["messages.tenant_id", "messages.conversation_id", "messages.id"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "message_id"),
        sqlite_strict=True,
    )
