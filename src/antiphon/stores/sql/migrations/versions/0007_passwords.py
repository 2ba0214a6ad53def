"""Passwords; what a session's browser says of itself; keys are found by their secret."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import TEXT

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "passwords",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("encoded", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "user_id"),
        sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
        sqlite_strict=True,
    )
    op.add_column("sessions", sa.Column("agent", TEXT, nullable=False, server_default=""))
    op.create_index("api_keys_by_secret", "api_keys", ["secret_sha256"])
