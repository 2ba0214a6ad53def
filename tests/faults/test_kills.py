"""kill -9 of server and replica at the crash points; ``python -m tests.faults.kills`` runs more of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from antiphon.stores.usage.kafka import TOPIC
from tests.faults.kills import all_points, record_of_this_commit, run, run_remembering
from tests.kafka_broker import KafkaBroker

pytestmark = pytest.mark.system


@pytest.mark.timeout(240)
def test_a_server_killed_between_store_and_log_loses_nothing() -> None:
    assert run(["C11"]) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_server_killed_before_it_reconciles_or_marks_accounts_once() -> None:
    """Fifty deaths between reserve and finish, fifty between the relay's delivery and its mark."""
    points = ["C3", "C4", "C9", "C11", "C12"] * 10 + ["C13", "C14"] * 25
    assert run(points, seed=7) == len(points)


def messages_on(broker: KafkaBroker) -> list[str]:
    """The generations of all records that the broker has, in the order in which they came."""
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "counting", "auto.offset.reset": "earliest", "log_level": 0})
    found: list[str] = []
    try:
        partitions = consumer.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
        while messages := consumer.consume(500, 2):
            found += [json.loads(message.value())["generation_id"] for message in messages]
    finally:
        consumer.close()
    return found


def relay_deaths(folder: Path, rounds: int) -> tuple[int, int]:
    """Die so often between the broker's word and the mark; returns how many records there were, and how many came more than once."""
    broker = KafkaBroker(folder)
    broker.start()
    try:
        broker.topic(TOPIC)
        assert run(["C14"] * rounds, seed=7, broker=broker.servers) == rounds
        sent = Counter(messages_on(broker))
    finally:
        broker.stop()
    return len(sent), sum(times > 1 for times in sent.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_relay_killed_fifty_times_over_a_broker_counts_each_record_once(tmp_path: Path) -> None:
    records, repeated = relay_deaths(tmp_path, 50)
    print(f"{records} records, {repeated} of them sent more than once, each in the ledger once")
    assert records >= 151
    assert repeated >= 50, "a death that repeats nothing was at another place"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_crash_point_many_times() -> None:
    """About half an hour on an idle machine; it goes on where it was interrupted."""
    wanted = all_points(20, 5)
    passed = run_remembering(wanted, record_of_this_commit())
    assert passed == {point: wanted.count(point) for point in dict.fromkeys(wanted)}


def test_rounds_are_remembered(tmp_path: Path) -> None:
    record = tmp_path / "kills.json"
    record.write_text('{"C1": 2, "R4": 1}')
    assert run_remembering(["C1", "C1", "R4"], record) == {"C1": 2, "R4": 1}
