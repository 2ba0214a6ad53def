"""The table of cases of accounts under suspicion; ``signals`` is JSON text, the score is in thousandths."""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.tables import metadata
from antiphon.stores.sql.types import NUMBER, TEXT

abuse_cases = sa.Table(
    "abuse_cases",
    metadata,
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("state", TEXT, nullable=False),
    sa.Column("score_permille", sa.Integer, nullable=False),
    sa.Column("signals", TEXT, nullable=False),
    sa.Column("since", NUMBER, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reviewed_by", TEXT),
    sa.Column("trusted_until", NUMBER),
    sa.PrimaryKeyConstraint("tenant_id", "user_id"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)
