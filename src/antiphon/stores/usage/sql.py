"""The outbox and the ledger on SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.generation import Usage
from antiphon.core.ids import TenantId
from antiphon.core.money import nanos_of, of_nanos
from antiphon.core.usage import Purpose, UsageRecord
from antiphon.stores.sql.base import Database, Value, across_tenants
from antiphon.stores.sql.prepared import Prepared
from antiphon.stores.sql.tables import outbox
from antiphon.stores.sql.usage_tables import ledger, usage_days
from antiphon.stores.usage import adding
from antiphon.stores.usage.base import Grouping, OutboxEntry, Total, TotalsQuestion

_REFUSED_FOR_GOOD = 20
_COLUMNS: dict[Grouping, str] = {
    "tenant": "tenant_id",
    "user": "user_id",
    "key": "key_id",
    "pool": "pool",
    "model": "model",
    "plan": "plan",
    "day": "day",
}

_waits = sa.select(outbox.c.id, outbox.c.tenant_id, outbox.c.payload, outbox.c.attempts).where(
    outbox.c.sent_at.is_(None), outbox.c.kind == "usage"
)
_fresh = Prepared(_waits.where(outbox.c.attempts == 0).order_by(outbox.c.id).limit(sa.bindparam("most")), across="outbox")
_refused = Prepared(
    _waits.where(outbox.c.attempts > 0, outbox.c.attempts < _REFUSED_FOR_GOOD)
    .order_by(outbox.c.attempts, outbox.c.id)
    .limit(sa.bindparam("most")),
    across="outbox",
)
_insert_record = Prepared(ledger.insert(), columns=tuple(column.name for column in ledger.c))
_insert_day = Prepared(usage_days.insert(), columns=tuple(column.name for column in usage_days.c))
_add_to_day = Prepared(
    usage_days.update()
    .where(*(usage_days.c[name] == sa.bindparam(f"key_{name}") for name in adding.KEY_COLUMNS))
    .values({name: usage_days.c[name] + sa.bindparam(f"more_{name}") for name in adding.SUMS}),
    columns=adding.SUMS,
)


class SqlOutbox:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def unsent(self, *, limit: int) -> tuple[OutboxEntry, ...]:
        def select(tx: sa.Connection) -> tuple[OutboxEntry, ...]:
            rows = list(_fresh.run(tx, {"most": limit}))
            if len(rows) < limit:
                rows += _refused.run(tx, {"most": limit - len(rows)})
            return tuple(OutboxEntry(row.id, row.tenant_id, row.payload, row.attempts) for row in rows)

        return await self._db.read(select)

    async def mark_sent(self, numbers: Sequence[int], *, now: datetime) -> None:
        change = outbox.update().where(outbox.c.id.in_(numbers)).values(sent_at=to_ms(now))
        await self._db.write(lambda tx: tx.execute(across_tenants(change, "outbox")).rowcount, durable=False)

    async def mark_refused(self, numbers: Sequence[int]) -> None:
        change = outbox.update().where(outbox.c.id.in_(numbers)).values(attempts=outbox.c.attempts + 1)
        await self._db.write(lambda tx: tx.execute(across_tenants(change, "outbox")).rowcount, durable=False)

    async def drop_sent(self, *, before: datetime, limit: int) -> int:
        old = sa.select(outbox.c.id).where(outbox.c.sent_at < to_ms(before)).limit(limit)
        gone = outbox.delete().where(outbox.c.id.in_(old))
        return await self._db.write(lambda tx: tx.execute(across_tenants(gone, "outbox")).rowcount, durable=False)

    async def waiting(self) -> int:
        count = sa.select(sa.func.count()).select_from(outbox).where(outbox.c.sent_at.is_(None))
        return await self._db.read(lambda tx: tx.execute(across_tenants(count, "outbox")).scalar_one())


class SqlLedger:
    """A put is synced to the disk with the next durable write: what a power cut takes is still in the outbox, unmarked."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def put(self, records: Sequence[UsageRecord]) -> int:
        return await self._db.write(lambda tx: _put(tx, records), durable=False) if records else 0

    async def totals(self, question: TotalsQuestion) -> tuple[Total, ...]:
        statement = _totals(question)
        rows = await self._db.read(lambda tx: tx.execute(statement).all())
        return tuple(_total_of(row, question.by) for row in rows)

    async def recent(self, *, since: datetime) -> tuple[UsageRecord, ...]:
        newest = sa.select(ledger).where(ledger.c.finished_at >= to_ms(since)).order_by(ledger.c.finished_at, ledger.c.generation_id)
        return await self._db.read(lambda tx: tuple(_record_of(row) for row in tx.execute(across_tenants(newest, "ledger"))))

    async def records(self, tenant_id: TenantId, *, since: datetime, limit: int) -> tuple[UsageRecord, ...]:
        of_tenant = sa.select(ledger).where(ledger.c.tenant_id == tenant_id, ledger.c.finished_at >= to_ms(since))
        newest = of_tenant.order_by(ledger.c.finished_at.desc(), ledger.c.generation_id.desc()).limit(limit)
        return await self._db.read(lambda tx: tuple(_record_of(row) for row in tx.execute(newest)))


def _put(tx: sa.Connection, records: Sequence[UsageRecord]) -> int:
    fresh: dict[tuple[str, str], UsageRecord] = {}
    for record in records:
        fresh.setdefault((record.tenant_id, record.generation_id), record)
    for tenant_id in {record.tenant_id for record in records}:
        names = [name for tenant, name in fresh if tenant == tenant_id]
        known = sa.select(ledger.c.generation_id).where(ledger.c.tenant_id == tenant_id, ledger.c.generation_id.in_(names))
        for name in tx.execute(known).scalars():
            del fresh[tenant_id, name]
    for record in fresh.values():
        _insert_record.run(tx, _values(record))
    for key, total in adding.by_day(fresh.values()).items():
        place: dict[str, Value] = {f"key_{name}": getattr(key, name) for name in adding.KEY_COLUMNS}
        more: dict[str, Value] = {f"more_{name}": getattr(total, name) for name in adding.SUMS}
        if _add_to_day.run(tx, {**place, **more}).rowcount == 0:
            row: dict[str, Value] = {name: getattr(key, name) for name in adding.KEY_COLUMNS}
            _insert_day.run(tx, {**row, **{name: getattr(total, name) for name in adding.SUMS}})
    return len(fresh)


def _totals(question: TotalsQuestion) -> sa.Select[*tuple[Any, ...]]:
    groups = [usage_days.c[_COLUMNS[name]].label(f"by_{name}") for name in question.by]
    sums = [sa.func.coalesce(sa.func.sum(usage_days.c[name]), 0).label(name) for name in adding.SUMS]
    statement = sa.select(*groups, *sums).where(
        usage_days.c.day >= question.since.strftime("%Y-%m-%d"), usage_days.c.day < question.until.strftime("%Y-%m-%d")
    )
    if question.tenant_id is not None:
        statement = statement.where(usage_days.c.tenant_id == question.tenant_id)
    if question.user_id is not None:
        statement = statement.where(usage_days.c.user_id == question.user_id)
    columns = [usage_days.c[_COLUMNS[name]] for name in question.by]
    statement = statement.group_by(*columns).order_by(*columns) if columns else statement
    return statement if question.tenant_id is not None else across_tenants(statement, "ledger")


def _total_of(row: Any, by: tuple[Grouping, ...]) -> Total:
    return Total({name: getattr(row, f"by_{name}") for name in by}, **{name: int(getattr(row, name)) for name in adding.SUMS})


def _values(record: UsageRecord) -> dict[str, Value]:
    usage = record.usage
    return {
        "tenant_id": record.tenant_id,
        "generation_id": record.generation_id,
        "finished_at": to_ms(record.finished_at),
        "user_id": record.user_id,
        "key_id": record.key_id,
        "conversation_id": record.conversation_id,
        "model": record.model,
        "requested_model": record.requested_model,
        "pool": record.pool,
        "release": record.release,
        "plan": record.plan,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "queued_ms": usage.queued_ms,
        "prefill_ms": usage.prefill_ms,
        "decode_ms": usage.decode_ms,
        "accelerator_ms": usage.accelerator_ms,
        "finish_reason": record.finish_reason,
        "cost_nanos": None if usage.cost is None else nanos_of(usage.cost),
        "estimated": int(record.estimated),
        "purpose": record.purpose.value,
    }


def _record_of(row: Any) -> UsageRecord:
    return UsageRecord(
        generation_id=row.generation_id,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        key_id=row.key_id,
        conversation_id=row.conversation_id,
        model=row.model,
        requested_model=row.requested_model,
        pool=row.pool,
        release=row.release,
        plan=row.plan,
        usage=Usage(
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
            output_tokens=row.output_tokens,
            queued_ms=row.queued_ms,
            prefill_ms=row.prefill_ms,
            decode_ms=row.decode_ms,
            accelerator_ms=row.accelerator_ms,
            cost=None if row.cost_nanos is None else of_nanos(row.cost_nanos),
        ),
        finish_reason=row.finish_reason,
        estimated=bool(row.estimated),
        finished_at=from_ms(row.finished_at),
        purpose=Purpose(row.purpose),
    )
