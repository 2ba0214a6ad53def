"""The ledger's tables: every generation once, and each day's totals of it, kept together in one transaction. ``open_usage`` holds what
generations without a row of their own have cost so far.

Money is whole nanos, so that sums are exact; an unknown cost is null in a record and counted as ``unpriced`` in a total.
"""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.tables import metadata
from antiphon.stores.sql.types import NUMBER, TEXT

ledger = sa.Table(
    "ledger",
    metadata,
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
    sa.Column("prompt_tokens", NUMBER, nullable=False),
    sa.Column("cached_tokens", NUMBER, nullable=False),
    sa.Column("output_tokens", NUMBER, nullable=False),
    sa.Column("queued_ms", NUMBER, nullable=False),
    sa.Column("prefill_ms", NUMBER, nullable=False),
    sa.Column("decode_ms", NUMBER, nullable=False),
    sa.Column("accelerator_ms", NUMBER, nullable=False),
    sa.Column("finish_reason", TEXT),
    sa.Column("cost_nanos", NUMBER),
    sa.Column("estimated", sa.Integer, nullable=False),
    sa.Column("purpose", TEXT, nullable=False, server_default="answer"),
    sa.PrimaryKeyConstraint("tenant_id", "generation_id"),
    sqlite_strict=True,
)
sa.Index("ledger_by_time", ledger.c.finished_at)
sa.Index("ledger_of_tenant", ledger.c.tenant_id, ledger.c.finished_at)

usage_days = sa.Table(
    "usage_days",
    metadata,
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("day", TEXT, nullable=False),
    sa.Column("user_id", TEXT, nullable=False),
    sa.Column("key_id", TEXT, nullable=False),
    sa.Column("pool", TEXT, nullable=False),
    sa.Column("model", TEXT, nullable=False),
    sa.Column("plan", TEXT, nullable=False),
    sa.Column("generations", NUMBER, nullable=False),
    sa.Column("prompt_tokens", NUMBER, nullable=False),
    sa.Column("cached_tokens", NUMBER, nullable=False),
    sa.Column("output_tokens", NUMBER, nullable=False),
    sa.Column("accelerator_ms", NUMBER, nullable=False),
    sa.Column("cost_nanos", NUMBER, nullable=False),
    sa.Column("unpriced", NUMBER, nullable=False),
    sa.Column("estimated", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "day", "user_id", "key_id", "pool", "model", "plan"),
    sqlite_strict=True,
)

open_usage = sa.Table(
    "open_usage",
    metadata,
    sa.Column("tenant_id", TEXT, nullable=False),
    sa.Column("generation_id", TEXT, nullable=False),
    sa.Column("kept_at", NUMBER, nullable=False),
    sa.Column("payload", TEXT, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "generation_id"),
    sqlite_strict=True,
)
sa.Index("open_usage_by_time", open_usage.c.kept_at)
