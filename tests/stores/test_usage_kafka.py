"""Usage over a real broker: at least once on the way, once in the ledger, and the same totals as without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.usage import usage_json
from antiphon.governance.relay import Relay
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.memory import MemoryState
from antiphon.stores.usage.base import GROUPINGS, OutboxEntry
from antiphon.stores.usage.kafka import TOPIC, KafkaLedgerFeed, KafkaRoute
from antiphon.stores.usage.local import LocalRoute
from antiphon.stores.usage.memory import MemoryLedger, MemoryOutbox
from tests.contracts.test_usage import ALWAYS, DAY, record
from tests.kafka_broker import KafkaBroker

RECORDS = [
    record(
        number,
        tenant=f"t{number % 5}",
        user=f"u{number % 7}",
        cost=None if number % 11 == 0 else "0.003",
        at=DAY + timedelta(hours=number % 60),
    )
    for number in range(1500)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    server = KafkaBroker(tmp_path_factory.mktemp("broker"))
    server.start()
    server.topic(TOPIC)
    yield server
    server.stop()


async def filled_outbox(clock: ManualClock) -> MemoryOutbox:
    state = MemoryState()
    generations = MemoryGenerations(state, clock)
    for one in RECORDS:
        await generations.add_usage(one.tenant_id, one.generation_id, usage_json(one), now=one.finished_at)
    await generations.add_usage(TenantId("tenant_t1"), GenerationId("gen_bad"), "nonsense", now=DAY)
    return MemoryOutbox(state)


class DyingAfterTheAck(KafkaRoute):
    """The relay's process ends between the broker's answer and the mark."""

    async def send(self, entries: Sequence[OutboxEntry]) -> frozenset[int]:
        await super().send(entries)
        raise StoreUnavailable


@pytest.mark.timeout(120)
async def test_a_broker_changes_no_total_and_a_dying_relay_repeats_nothing(broker: KafkaBroker, clock: ManualClock) -> None:
    local = MemoryLedger()
    await Relay(await filled_outbox(clock), LocalRoute(local), clock).drain()
    outbox = await filled_outbox(clock)
    for _ in range(3):
        dying = DyingAfterTheAck(broker.servers)
        with pytest.raises(StoreUnavailable):
            await Relay(outbox, dying, clock).drain()
        await dying.close()
    route = KafkaRoute(broker.servers)
    assert await Relay(outbox, route, clock).drain() == len(RECORDS)
    await route.close()
    ledger = MemoryLedger()
    assert await KafkaLedgerFeed(broker.servers, ledger, group="first").drain() == len(RECORDS)
    for grouping in GROUPINGS:
        by = type(ALWAYS)(ALWAYS.since, ALWAYS.until, (grouping,))
        assert await ledger.totals(by) == await local.totals(by)
    assert await KafkaLedgerFeed(broker.servers, ledger, group="another").drain() == 0


async def test_without_its_broker_records_wait(tmp_path: Path, clock: ManualClock) -> None:
    away = KafkaBroker(tmp_path)
    outbox = await filled_outbox(clock)
    route = KafkaRoute(away.servers)
    with pytest.raises(StoreUnavailable):
        await Relay(outbox, route, clock).drain()
    await route.close()
    assert await outbox.waiting() == len(RECORDS) + 1
