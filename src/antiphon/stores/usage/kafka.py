"""The route over Kafka: a relay's producer, and the feed that fills a ledger on the other side.

The producer is idempotent and waits for all replicas (``acks=all``); records are keyed by tenant, so each tenant's stay in order. Kafka
removes only repetitions of one producer's session, and a relay may die between delivery and mark, so the ledger knows each generation.
The feed reads every partition, as one ledger holds all; its place is committed after the ledger has the rows, so a feed that dies reads
them again, and a second feed of one ledger adds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.core.usage import UnreadableRecord, UsageRecord, usage_record
from antiphon.stores.usage.adding import readable_records
from antiphon.stores.usage.base import Ledger, OutboxEntry

log = structlog.get_logger(__name__)

TOPIC = "antiphon.usage.v1"
GROUP = "antiphon-ledger"

_BATCH = 500
_ANSWER_S = 5.0
_ROUND_S = 0.5
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 15.0


def servers_of(url: str) -> str:
    """The bootstrap servers of ``kafka://host:port[,host:port…]``."""
    return urlsplit(url).netloc


class KafkaRoute:
    """One producer for one relay, made with the first batch and anew after a failure."""

    def __init__(self, servers: str, topic: str = TOPIC) -> None:
        self._servers = servers
        self._topic = topic
        self._producer: Producer | None = None

    async def send(self, entries: Sequence[OutboxEntry]) -> frozenset[int]:
        """See ``Route.send``. What is not acknowledged within five seconds is dropped here and waits in the outbox."""
        readable = readable_records(entries)
        await asyncio.to_thread(self._deliver, [entry for entry in entries if entry.number in readable])
        return frozenset(readable)

    async def close(self) -> None:
        self._producer = None

    def _deliver(self, entries: Sequence[OutboxEntry]) -> None:
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.timeout.ms": int(_ANSWER_S * 1000),
                    "log_level": 0,
                }
            )
        acks: list[KafkaError | None] = []

        def heard(fault: KafkaError | None, _message: Message) -> None:
            acks.append(fault)

        try:
            for entry in entries:
                self._producer.produce(self._topic, entry.payload.encode("utf-8"), key=entry.tenant_id.encode("utf-8"), on_delivery=heard)
            self._producer.flush(_ANSWER_S + 1)
        except (KafkaException, BufferError) as fault:
            self._give_up(fault)
        faults = [fault for fault in acks if fault is not None]
        if faults or len(acks) < len(entries):
            self._give_up(faults[0] if faults else None)

    def _give_up(self, fault: object) -> None:
        """A batch that failed is sent again by another producer, in its order."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
        log.info("broker_refused", reason=str(fault))
        raise StoreUnavailable("The broker cannot be reached.", retry_after_ms=1000)


class KafkaLedgerFeed:
    """Reads the topic into a ledger; ``group`` is the name under which Kafka keeps its place."""

    def __init__(self, servers: str, ledger: Ledger, *, group: str = GROUP, topic: str = TOPIC) -> None:
        self._servers = servers
        self._ledger = ledger
        self._group = group
        self._topic = topic

    async def run_for_ever(self) -> None:
        """Until cancelled; outages of broker and ledger are waited out."""
        pause = _PAUSE_S
        while True:
            try:
                await self._read(lambda: False)
            except (StoreUnavailable, DiskFull) as outage:
                log.warning("usage_not_read", reason=outage.code)
            except Exception:  # a fault of ours must not end the feed: what is not committed is read again
                log.exception("usage_feed_broke")
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    async def drain(self) -> int:
        """Read what is there now; returns how many records were new. Raises ``StoreUnavailable``, ``DiskFull``."""
        return await self._read(lambda: True)

    async def _read(self, enough: Callable[[], bool]) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        fresh = 0
        try:
            missing = await asyncio.to_thread(_assigned, consumer, self._topic)
            while missing > 0 or not enough():
                payloads = await asyncio.to_thread(_taken, consumer)
                missing -= len(payloads)
                if payloads:
                    fresh += await self._ledger.put(_readable(payloads))
                    await asyncio.to_thread(consumer.commit, asynchronous=False)
        except KafkaException as fault:
            raise StoreUnavailable("The broker cannot be reached.", retry_after_ms=1000) from fault
        finally:
            await asyncio.to_thread(consumer.close)
        return fresh


def _assigned(consumer: Consumer, topic: str) -> int:
    """Take every partition at its committed place; returns how many records wait there now. Raises ``KafkaException``."""
    found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    places = consumer.committed([TopicPartition(topic, number) for number in found.partitions], timeout=_ANSWER_S)
    waiting = 0
    for place in places:
        first, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
        waiting += end - (place.offset if place.offset >= 0 else first)
    consumer.assign(places)
    return waiting


def _taken(consumer: Consumer) -> list[bytes]:
    """The next payloads, at most a batch of them. Raises ``KafkaException``."""
    payloads: list[bytes] = []
    for message in consumer.consume(_BATCH, _ROUND_S):
        fault = message.error()
        if fault is not None:
            raise KafkaException(fault)
        payloads.append(message.value() or b"")
    return payloads


def _readable(payloads: Sequence[bytes]) -> list[UsageRecord]:
    found: list[UsageRecord] = []
    for payload in payloads:
        try:
            found.append(usage_record(payload.decode("utf-8")))
        except (UnreadableRecord, UnicodeDecodeError) as fault:
            log.error("usage_unreadable", reason=str(fault)[:200])
    return found
