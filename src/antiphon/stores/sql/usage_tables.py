"""The ledger's tables: every generation once, and each day's totals of it, kept together in one transaction. ``open_usage`` holds what
generations without a row of their own have cost so far.

Money is whole nanos, so that sums are exact; an unknown cost is null in a record and counted as ``unpriced`` in a total.
"""

from __future__ import annotations

import sqlalchemy as sa

from antiphon.stores.sql.tables import metadata

_Moment = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Amount = sa.BigInteger().with_variant(sa.Integer, "sqlite")

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("generation_id", sa.Text, nullable=False),
    sa.Column("finished_at", _Moment, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text),
    sa.Column("conversation_id", sa.Text),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("requested_model", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("release", sa.Text),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("prompt_tokens", _Amount, nullable=False),
    sa.Column("cached_tokens", _Amount, nullable=False),
    sa.Column("output_tokens", _Amount, nullable=False),
    sa.Column("queued_ms", _Amount, nullable=False),
    sa.Column("prefill_ms", _Amount, nullable=False),
    sa.Column("decode_ms", _Amount, nullable=False),
    sa.Column("accelerator_ms", _Amount, nullable=False),
    sa.Column("finish_reason", sa.Text),
    sa.Column("cost_nanos", _Amount),
    sa.Column("estimated", sa.Integer, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False, server_default="answer"),
    sa.PrimaryKeyConstraint("tenant_id", "generation_id"),
    sqlite_strict=True,
)
sa.Index("ledger_by_time", ledger.c.finished_at)
sa.Index("ledger_of_tenant", ledger.c.tenant_id, ledger.c.finished_at)

usage_days = sa.Table(
    "usage_days",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("day", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("generations", _Amount, nullable=False),
    sa.Column("prompt_tokens", _Amount, nullable=False),
    sa.Column("cached_tokens", _Amount, nullable=False),
    sa.Column("output_tokens", _Amount, nullable=False),
    sa.Column("accelerator_ms", _Amount, nullable=False),
    sa.Column("cost_nanos", _Amount, nullable=False),
    sa.Column("unpriced", _Amount, nullable=False),
    sa.Column("estimated", _Amount, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "day", "user_id", "key_id", "pool", "model", "plan"),
    sqlite_strict=True,
)

open_usage = sa.Table(
    "open_usage",
    metadata,
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("generation_id", sa.Text, nullable=False),
    sa.Column("kept_at", _Moment, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("tenant_id", "generation_id"),
    sqlite_strict=True,
)
sa.Index("open_usage_by_time", open_usage.c.kept_at)
