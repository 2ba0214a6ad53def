"""Statements on what generations without a row of their own have cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import sqlalchemy as sa

from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.usage import UnreadableRecord, UsageRecord, usage_json, usage_record
from antiphon.stores.sql.base import Value, across_tenants
from antiphon.stores.sql.prepared import Prepared, matching
from antiphon.stores.sql.usage_tables import open_usage

_named = (open_usage.c.tenant_id == sa.bindparam("key_tenant_id"), open_usage.c.generation_id == sa.bindparam("key_generation_id"))
_renew = Prepared(open_usage.update().where(*_named).values(kept_at=sa.bindparam("now_ms"), payload=sa.bindparam("so_far")))
_insert = Prepared(open_usage.insert(), columns=tuple(column.name for column in open_usage.c))
_drop = Prepared(open_usage.delete().where(*matching(open_usage, "tenant_id", "generation_id")))


def put_open(tx: sa.Connection, records: Sequence[UsageRecord], now_ms: int) -> None:
    """Each in place of what was kept of it."""
    for record in records:
        payload = usage_json(record)
        key: dict[str, Value] = {"key_tenant_id": record.tenant_id, "key_generation_id": record.generation_id}
        if _renew.run(tx, {**key, "now_ms": now_ms, "so_far": payload}).rowcount == 0:
            row: dict[str, Value] = {"tenant_id": record.tenant_id, "generation_id": record.generation_id}
            _insert.run(tx, {**row, "kept_at": now_ms, "payload": payload})


def drop_open(tx: sa.Connection, tenant_id: TenantId, generation_id: GenerationId) -> None:
    """Nothing where nothing is kept."""
    _drop.run(tx, {"tenant_id": tenant_id, "generation_id": generation_id})


def select_left(tx: sa.Connection, before_ms: int, limit: int) -> tuple[UsageRecord, ...]:
    """Kept before then, the longest ago first; what nobody can read stays where it is."""
    left = sa.select(open_usage.c.payload).where(open_usage.c.kept_at < before_ms)
    query = left.order_by(open_usage.c.kept_at, open_usage.c.generation_id).limit(limit)
    found: list[UsageRecord] = []
    for payload in tx.execute(across_tenants(query, "open_usage")).scalars():
        with suppress(UnreadableRecord):
            found.append(usage_record(payload))
    return tuple(found)
