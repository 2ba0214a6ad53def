"""Cases on SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from antiphon.core.abuse import Case, CaseState, Signal
from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import Conflict
from antiphon.core.ids import TenantId, UserId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.sql.abuse_tables import abuse_cases
from antiphon.stores.sql.base import Database, across_tenants
from antiphon.stores.sql.records import add_audit


class SqlAbuseCases:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def open(self) -> tuple[Case, ...]:
        every = sa.select(abuse_cases)
        return await self._db.read(lambda tx: tuple(_case_of(row) for row in tx.execute(across_tenants(every, "abuse"))))

    async def of_tenant(self, tenant_id: TenantId) -> tuple[Case, ...]:
        own = sa.select(abuse_cases).where(abuse_cases.c.tenant_id == tenant_id)
        newest = own.order_by(abuse_cases.c.since.desc(), abuse_cases.c.user_id.desc())
        return await self._db.read(lambda tx: tuple(_case_of(row) for row in tx.execute(newest)))

    async def get(self, tenant_id: TenantId, user_id: UserId) -> Case | None:
        one = sa.select(abuse_cases).where(abuse_cases.c.tenant_id == tenant_id, abuse_cases.c.user_id == user_id)
        row = await self._db.read(lambda tx: tx.execute(one).one_or_none())
        return None if row is None else _case_of(row)

    async def put(self, case: Case, by: Owner, action: str, *, now: datetime, by_server: bool = False) -> None:
        def put(tx: sa.Connection) -> None:
            if case.version == 1:
                try:
                    tx.execute(abuse_cases.insert().values(_values(case)))
                except IntegrityError as taken:
                    raise Conflict from taken
            else:
                stands = (abuse_cases.c.tenant_id == case.tenant_id, abuse_cases.c.user_id == case.user_id)
                change = abuse_cases.update().where(*stands, abuse_cases.c.version == case.version - 1).values(_values(case))
                if tx.execute(change).rowcount != 1:
                    raise Conflict
            add_audit(tx, by, action, case.user_id, now, by_server=by_server)

        await self._db.write(put)


def _values(case: Case) -> dict[str, str | int | None]:
    return {
        "tenant_id": case.tenant_id,
        "user_id": case.user_id,
        "state": case.state.value,
        "score_permille": round(1000 * case.score),
        "signals": msgspec.json.encode({signal.name: round(signal.level, 3) for signal in case.signals}).decode(),
        "since": to_ms(case.since),
        "version": case.version,
        "reviewed_by": case.reviewed_by,
        "trusted_until": None if case.trusted_until is None else to_ms(case.trusted_until),
    }


def _case_of(row: Any) -> Case:
    signals = msgspec.json.decode(row.signals, type=dict[str, float])
    return Case(
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        state=CaseState(row.state),
        score=row.score_permille / 1000,
        signals=tuple(Signal(name, level) for name, level in signals.items()),
        since=from_ms(row.since),
        version=row.version,
        reviewed_by=row.reviewed_by,
        trusted_until=None if row.trusted_until is None else from_ms(row.trusted_until),
    )
