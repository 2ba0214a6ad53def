"""Passwords; what a session's browser says of itself; keys are found by their secret."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "passwords",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("encoded", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "user_id"),
        sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
        sqlite_strict=True,
    )
    op.add_column("sessions", sa.Column("agent", sa.Text(), nullable=False, server_default=""))
    op.create_index("api_keys_by_secret", "api_keys", ["secret_sha256"])
