"""The contract of outbox and ledger: every generation once, totals that add up, and nobody kept waiting by what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import StoreUnavailable
from antiphon.core.generation import Usage
from antiphon.core.ids import ConversationId, GenerationId, KeyId, TenantId, UserId
from antiphon.core.usage import UsageRecord, usage_json
from antiphon.governance.relay import BATCH, Relay
from antiphon.stores.usage.base import GROUPINGS, Outbox, OutboxEntry, Total, TotalsQuestion
from antiphon.stores.usage.local import LocalRoute
from tests.contracts.scene import Scene

DAY = datetime(2026, 3, 1, tzinfo=UTC)
ALWAYS = TotalsQuestion(DAY - timedelta(days=400), DAY + timedelta(days=400))


def record(
    number: int, *, tenant: str = "t1", user: str = "u1", key: str | None = None, at: datetime = DAY, cost: str | None = "0.001"
) -> UsageRecord:
    return UsageRecord(
        generation_id=GenerationId(f"gen_{number}"),
        tenant_id=TenantId(f"tenant_{tenant}"),
        user_id=UserId(f"user_{user}"),
        key_id=None if key is None else KeyId(key),
        conversation_id=ConversationId("conv_1"),
        model="m",
        requested_model="m",
        pool="small",
        release=None,
        plan="free",
        usage=Usage(10, 4, 5, 1, 2, 3, 40, cost=None if cost is None else Decimal(cost)),
        finish_reason="stop",
        estimated=number % 2 == 1,
        finished_at=at,
    )


async def put_into_outbox(scene: Scene, records: Sequence[UsageRecord]) -> None:
    for one in records:
        await scene.generations.add_usage(one.tenant_id, one.generation_id, usage_json(one), now=one.finished_at)


async def test_a_record_is_kept_once_however_often_it_comes(scene: Scene) -> None:
    assert await scene.ledger.put([record(1), record(2), record(1)]) == 2
    assert await scene.ledger.put([record(2), record(3)]) == 1
    assert await scene.ledger.put([]) == 0
    (whole,) = await scene.ledger.totals(ALWAYS)
    assert whole == Total({}, 3, 30, 12, 15, 120, 3_000_000, 0, 2)
    assert whole.output_tokens_per_accelerator_second == 125.0
    assert await scene.ledger.recent(since=DAY) == (record(1), record(2), record(3))


async def test_totals_are_by_tenant_user_key_pool_model_plan_and_day(scene: Scene) -> None:
    later = DAY + timedelta(hours=25)
    await scene.ledger.put([record(1), record(2, user="u2", key="k"), record(3, at=later), record(4, tenant="t2", cost=None)])
    by_day = await scene.ledger.totals(replace(ALWAYS, by=("day",)))
    assert [(total.group["day"], total.generations) for total in by_day] == [("2026-03-01", 3), ("2026-03-02", 1)]
    by_user = await scene.ledger.totals(replace(ALWAYS, by=("tenant", "user"), tenant_id=TenantId("tenant_t1")))
    assert [(total.group["user"], total.generations) for total in by_user] == [("user_u1", 2), ("user_u2", 1)]
    (mine,) = await scene.ledger.totals(replace(ALWAYS, tenant_id=TenantId("tenant_t1"), user_id=UserId("user_u1"), until=later))
    assert mine.generations == 1
    (theirs,) = await scene.ledger.totals(replace(ALWAYS, tenant_id=TenantId("tenant_t2")))
    assert (theirs.cost_nanos, theirs.unpriced) == (0, 1)
    for grouping in GROUPINGS:
        assert sum(total.generations for total in await scene.ledger.totals(replace(ALWAYS, by=(grouping,)))) == 4
    (nobody,) = await scene.ledger.totals(replace(ALWAYS, tenant_id=TenantId("tenant_none")))
    assert nobody == Total()
    newest = await scene.ledger.records(TenantId("tenant_t1"), since=DAY, limit=2)
    assert newest == (record(3, at=later), record(2, user="u2", key="k"))


async def test_the_relay_carries_all_that_waits_and_again_is_nothing(scene: Scene) -> None:
    records = [record(number) for number in range(BATCH + 7)]
    await put_into_outbox(scene, records)
    seen: list[GenerationId] = []

    async def note(left: Sequence[UsageRecord]) -> None:
        seen.extend(one.generation_id for one in left)

    relay = Relay(scene.outbox, LocalRoute(scene.ledger), scene.clock, note)
    assert await scene.outbox.waiting() == len(records)
    assert await relay.drain() == len(records)
    assert await relay.drain() == 0
    assert seen == [one.generation_id for one in records]
    assert (await scene.ledger.totals(ALWAYS))[0].generations == len(records)
    assert await scene.outbox.waiting() == 0
    scene.clock.advance(3600)
    assert await scene.outbox.drop_sent(before=scene.clock.now(), limit=BATCH) == BATCH
    assert await scene.outbox.drop_sent(before=scene.clock.now(), limit=BATCH) == 7


class Dying(LocalRoute):
    """Delivers, and then its answer is lost."""

    async def send(self, entries: Sequence[OutboxEntry]) -> frozenset[int]:
        await super().send(entries)
        raise StoreUnavailable


async def test_a_relay_that_dies_after_the_delivery_delivers_again_and_the_ledger_keeps_one(scene: Scene) -> None:
    await put_into_outbox(scene, [record(1), record(2)])
    with pytest.raises(StoreUnavailable):
        await Relay(scene.outbox, Dying(scene.ledger), scene.clock).drain()
    assert await scene.outbox.waiting() == 2
    await Relay(scene.outbox, LocalRoute(scene.ledger), scene.clock).drain()
    assert (await scene.ledger.totals(ALWAYS))[0].generations == 2


async def test_a_record_that_nobody_can_read_keeps_no_other_waiting(scene: Scene, clock: ManualClock) -> None:
    await scene.generations.add_usage(TenantId("tenant_t1"), GenerationId("gen_bad"), "{nonsense", now=clock.now())
    await put_into_outbox(scene, [record(1), record(2)])
    relay = Relay(scene.outbox, LocalRoute(scene.ledger), scene.clock)
    assert await relay.drain() == 2
    await put_into_outbox(scene, [record(3)])
    assert await relay.drain() == 1
    assert (await scene.ledger.totals(ALWAYS))[0].generations == 3
    for _ in range(30):
        await relay.drain()
    assert await scene.outbox.unsent(limit=10) == ()
    assert await scene.outbox.waiting() == 1


async def test_the_oldest_go_first(scene: Scene) -> None:
    await put_into_outbox(scene, [record(number) for number in range(5)])
    first: Outbox = scene.outbox
    assert [usage_json(record(number)) for number in range(3)] == [entry.payload for entry in await first.unsent(limit=3)]


async def test_what_is_open_is_kept_until_its_usage_is_added(scene: Scene) -> None:
    generations, start = scene.generations, scene.clock.now()
    later = start + timedelta(seconds=5)
    await generations.keep_usage([record(1), record(2, tenant="t2")], now=start)
    assert await generations.left_usage(before=start, limit=9) == ()
    further = replace(record(1), usage=Usage(10, 4, 9, 1, 2, 3, 40, cost=None))
    await generations.keep_usage([further], now=later)
    assert await generations.left_usage(before=later, limit=9) == (record(2, tenant="t2"),)
    assert await generations.left_usage(before=later + timedelta(seconds=1), limit=9) == (record(2, tenant="t2"), further)
    assert await generations.left_usage(before=later + timedelta(seconds=1), limit=1) == (record(2, tenant="t2"),)
    await put_into_outbox(scene, [further])
    await put_into_outbox(scene, [record(1)])
    assert await generations.left_usage(before=later + timedelta(seconds=1), limit=9) == (record(2, tenant="t2"),)
    assert [entry.payload for entry in await scene.outbox.unsent(limit=9)] == [usage_json(further)]
