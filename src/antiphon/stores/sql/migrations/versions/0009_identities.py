"""Who people are at identity providers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import TEXT

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "identities",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("issuer", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "user_id", "issuer", "subject"),
        sa.UniqueConstraint("issuer", "subject", name="identities_subject"),
        sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
        sqlite_strict=True,
    )
