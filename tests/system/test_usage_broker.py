"""Usage over a broker that is away for long: nobody who chats notices, and afterwards every record has arrived once."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from antiphon.core.clock import rfc3339
from antiphon.stores.usage.kafka import TOPIC
from tests.kafka_broker import KafkaBroker
from tests.system.served import Server, eventually
from tests.system.test_limits import asked, config

pytestmark = pytest.mark.system
PLAN = '[[plans]]\nname = "free"\ntokens_per_minute = 10000000\nrequests_per_minute = 10000\nconcurrency = 100\n'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Not started."""
    folder = tmp_path / "broker"
    folder.mkdir()
    found = KafkaBroker(folder)
    yield found
    found.stop()


def over(broker: KafkaBroker) -> str:
    return f'[events]\nurl = "kafka://{broker.servers}"\n{config(PLAN)}'


def rows(server: Server, question: str) -> int:
    with sqlite3.connect(server.data / "antiphon.db", timeout=30) as database:
        return int(database.execute(question).fetchone()[0])


def left_behind(server: Server, count: int) -> None:
    """So many records more wait, as if an outage had been long."""
    with sqlite3.connect(server.data / "antiphon.db", timeout=60) as database:
        tenant, payload, at = database.execute("SELECT tenant_id, payload, created_at FROM outbox LIMIT 1").fetchone()
        like = {**json.loads(payload), "finished_at": rfc3339(datetime.now(UTC) - timedelta(hours=2))}  # charged long ago
        waiting = [(tenant, f"gen_{number}", json.dumps({**like, "generation_id": f"gen_{number}"}), at) for number in range(count)]
        statement = "INSERT INTO outbox (tenant_id, kind, dedup_key, payload, created_at, attempts) VALUES (?, 'usage', ?, ?, ?, 0)"
        database.executemany(statement, waiting)


def peak_kb(server: Server) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def outage(server: Server, broker: KafkaBroker, count: int) -> tuple[float, int]:
    """Seconds until all had arrived, and by how many kB the server's peak grew."""
    with server.person().http as http:
        assert asked(http).status_code == 200
        eventually(lambda: rows(server, "SELECT count(*) FROM outbox") == 1, within_s=10, what="the first record")
        before = peak_kb(server)
        left_behind(server, count)
        for _ in range(5):
            start = time.monotonic()
            assert asked(http).status_code == 200
            assert time.monotonic() - start < 5
        assert rows(server, "SELECT count(*) FROM outbox WHERE sent_at IS NULL") == count + 6
        broker.start()
        broker.topic(TOPIC)
        start = time.monotonic()
        unsent, kept = "SELECT count(*) FROM outbox WHERE sent_at IS NULL", "SELECT count(*) FROM ledger"
        while rows(server, unsent) or rows(server, kept) < count + 6:
            assert time.monotonic() - start < 300, (rows(server, unsent), rows(server, kept), server.log())
            assert asked(http).status_code == 200
            count += 1
            time.sleep(0.5)
        return time.monotonic() - start, peak_kb(server) - before


@pytest.mark.slow
def test_a_broker_that_comes_late_gets_each_record_and_the_ledger_keeps_one(
    make_server: Callable[[str], Server], broker: KafkaBroker
) -> None:
    server = make_server(over(broker))
    outage(server, broker, 2000)
    server.kill_group()
    server.start()
    total = rows(server, "SELECT count(*) FROM outbox WHERE kind = 'usage'")
    eventually(lambda: rows(server, "SELECT count(*) FROM ledger") == total, within_s=30, what="the ledger")
    assert rows(server, "SELECT sum(generations) FROM usage_days") == total


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_records_wait_for_a_broker(make_server: Callable[[str], Server], broker: KafkaBroker) -> None:
    server = make_server(over(broker))
    seconds, grown_kb = outage(server, broker, 100_000)
    print(f"drained in {seconds:.0f} s, peak grew by {grown_kb} kB")
    assert grown_kb < 100_000
    assert rows(server, "SELECT sum(generations) FROM usage_days") == rows(server, "SELECT count(*) FROM ledger")
