"""What an entry of the outbox says, which totals a record belongs to, and what it adds to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from antiphon.core.money import nanos_of
from antiphon.core.usage import Purpose, UnreadableRecord, UsageRecord, usage_record
from antiphon.stores.usage.base import OutboxEntry, Total

SUMS = ("generations", "prompt_tokens", "cached_tokens", "output_tokens", "accelerator_ms", "cost_nanos", "unpriced", "estimated")


@dataclass(frozen=True, slots=True)
class DayKey:
    """A day's finest total: of one user, key, pool, model and plan. Without a key ``key_id`` is empty."""

    tenant_id: str
    day: str
    user_id: str
    key_id: str
    pool: str
    model: str
    plan: str


KEY_COLUMNS = tuple(entry.name for entry in fields(DayKey))


def day_key(record: UsageRecord) -> DayKey:
    return DayKey(
        tenant_id=record.tenant_id,
        day=record.finished_at.strftime("%Y-%m-%d"),
        user_id=record.user_id,
        key_id=record.key_id or "",
        pool=record.pool,
        model=record.model,
        plan=record.plan,
    )


def of_record(record: UsageRecord) -> Total:
    """The total of one record; what is no answer adds tokens, time and cost to the answers', and none to their number."""
    usage, is_answer = record.usage, record.purpose is Purpose.ANSWER
    return Total(
        generations=int(is_answer),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        accelerator_ms=usage.accelerator_ms,
        cost_nanos=nanos_of(usage.cost),
        unpriced=int(is_answer and usage.cost is None),
        estimated=int(is_answer and record.estimated),
    )


def added(left: Total, right: Total) -> Total:
    """The sum; ``left``'s group."""
    return replace(left, **{name: int(getattr(left, name)) + int(getattr(right, name)) for name in SUMS})


def by_day(records: Iterable[UsageRecord]) -> dict[DayKey, Total]:
    """What ``records`` add to each day's totals."""
    found: dict[DayKey, Total] = {}
    for record in records:
        key = day_key(record)
        found[key] = added(found.get(key, Total()), of_record(record))
    return found


def readable_records(entries: Sequence[OutboxEntry]) -> dict[int, UsageRecord]:
    """The entries' records by their numbers, without those that nobody can read."""
    found: dict[int, UsageRecord] = {}
    for entry in entries:
        try:
            found[entry.number] = usage_record(entry.payload)
        except UnreadableRecord:
            continue
    return found
