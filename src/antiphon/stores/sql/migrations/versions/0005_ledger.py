"""The ledger: every generation's usage once, and each day's totals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from antiphon.stores.sql.types import NUMBER, TEXT

revision = "0005"
down_revision = "0004"

_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens")


def upgrade() -> None:
    op.create_table(
        "ledger",
        sa.Column("tenant_id", TEXT, nullable=False),
        sa.Column("generation_id", TEXT, nullable=False),
        sa.Column("finished_at", NUMBER, nullable=False),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("key_id", TEXT),
        sa.Column("conversation_id", TEXT),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("requested_model", TEXT, nullable=False),
        sa.Column("pool", TEXT, nullable=False),
        sa.Column("release", TEXT),
        sa.Column("plan", TEXT, nullable=False),
        *(sa.Column(name, NUMBER, nullable=False) for name in (*_COUNTS, "queued_ms", "prefill_ms", "decode_ms", "accelerator_ms")),
        sa.Column("finish_reason", TEXT),
        sa.Column("cost_nanos", NUMBER),
        sa.Column("estimated", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "generation_id"),
        sqlite_strict=True,
    )
    op.create_index("ledger_by_time", "ledger", ["finished_at"])
    op.create_index("ledger_of_tenant", "ledger", ["tenant_id", "finished_at"])
    key = ("tenant_id", "day", "user_id", "key_id", "pool", "model", "plan")
    sums = ("generations", *_COUNTS, "accelerator_ms", "cost_nanos", "unpriced", "estimated")
    op.create_table(
        "usage_days",
        *(sa.Column(name, TEXT, nullable=False) for name in key),
        *(sa.Column(name, NUMBER, nullable=False) for name in sums),
        sa.PrimaryKeyConstraint(*key),
        sqlite_strict=True,
    )
