"""What generations that no row tells of have cost so far."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import NUMBER, TEXT

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "open_usage",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("generation_id", TEXT, nullable=False),
        sa.Column("kept_at", NUMBER, nullable=False),
        sa.Column("payload", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "generation_id"),
        sqlite_strict=True,
    )
    op.create_index("open_usage_by_time", "open_usage", ["kept_at"])
