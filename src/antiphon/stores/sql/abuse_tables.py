"""The table of cases of accounts under suspicion; ``signals`` is JSON text, the score is in thousandths."""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.tables import metadata

_Moment = sa.BigInteger().with_variant(sa.Integer, "sqlite")

abuse_cases = sa.Table(
    "abuse_cases",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("score_permille", sa.Integer, nullable=False),
    sa.Column("signals", sa.Text, nullable=False),
    sa.Column("since", _Moment, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reviewed_by", sa.Text),
    sa.Column("trusted_until", _Moment),
    sa.PrimaryKeyConstraint("tenant_id", "user_id"),
    sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"]),
    sqlite_strict=True,
)
