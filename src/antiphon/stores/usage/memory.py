"""The outbox and the ledger in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from antiphon.core.ids import TenantId
from antiphon.core.usage import UsageRecord
from antiphon.stores.memory import MemoryState
from antiphon.stores.usage import adding
from antiphon.stores.usage.base import Grouping, OutboxEntry, Total, TotalsQuestion

_REFUSED_FOR_GOOD = 20


class MemoryOutbox:
    """Over the rows that the memory driver of generations writes; an entry's number is its place."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def unsent(self, *, limit: int) -> tuple[OutboxEntry, ...]:
        waits = [
            OutboxEntry(number, row.tenant_id, row.payload, row.attempts)
            for number, row in enumerate(self._state.outbox)
            if row.sent_at is None and row.attempts < _REFUSED_FOR_GOOD
        ]
        return tuple(sorted(waits, key=lambda entry: (entry.attempts, entry.number))[:limit])

    async def mark_sent(self, numbers: Sequence[int], *, now: datetime) -> None:
        for number in numbers:
            self._state.outbox[number] = replace(self._state.outbox[number], sent_at=now)

    async def mark_refused(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            row = self._state.outbox[number]
            self._state.outbox[number] = replace(row, attempts=row.attempts + 1)

    async def drop_sent(self, *, before: datetime, limit: int) -> int:
        """Places are numbers here, so what was sent keeps its place and loses its payload."""
        old = [number for number, row in enumerate(self._state.outbox) if row.sent_at is not None and row.sent_at < before and row.payload]
        for number in old[:limit]:
            self._state.outbox[number] = replace(self._state.outbox[number], payload="")
        return len(old[:limit])

    async def waiting(self) -> int:
        return sum(row.sent_at is None for row in self._state.outbox)


class MemoryLedger:
    def __init__(self) -> None:
        self._records: dict[tuple[str, str], UsageRecord] = {}

    async def put(self, records: Sequence[UsageRecord]) -> int:
        before = len(self._records)
        for record in records:
            self._records.setdefault((record.tenant_id, record.generation_id), record)
        return len(self._records) - before

    async def totals(self, question: TotalsQuestion) -> tuple[Total, ...]:
        since, until = question.since.strftime("%Y-%m-%d"), question.until.strftime("%Y-%m-%d")
        found: dict[tuple[str, ...], Total] = {} if question.by else {(): Total()}
        for record in self._records.values():
            key = adding.day_key(record)
            mine = question.tenant_id in {None, record.tenant_id} and question.user_id in {None, record.user_id}
            if mine and since <= key.day < until:
                group: dict[Grouping, str] = {name: _part(key, name) for name in question.by}
                place = tuple(group.values())
                found[place] = adding.added(found.get(place, Total(group)), adding.of_record(record))
        return tuple(total for _, total in sorted(found.items(), key=lambda item: item[0]))

    async def recent(self, *, since: datetime) -> tuple[UsageRecord, ...]:
        found = [record for record in self._records.values() if record.finished_at >= since]
        return tuple(sorted(found, key=lambda record: (record.finished_at, record.generation_id)))

    async def records(self, tenant_id: TenantId, *, since: datetime, limit: int) -> tuple[UsageRecord, ...]:
        newest = reversed(await self.recent(since=since))
        return tuple([record for record in newest if record.tenant_id == tenant_id][:limit])


def _part(key: adding.DayKey, name: Grouping) -> str:
    return str(getattr(key, {"tenant": "tenant_id", "user": "user_id", "key": "key_id"}.get(name, name)))
