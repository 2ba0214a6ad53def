"""A restart under live streams: every reader comes back by itself and misses nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from antiphon.client import Client, Delta, Done, Event, Snapshot, Status
from tests.system.served import Person, Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(240)]

STREAMS = 200
WORDS = 500
GAP_P99_S = 3.0
RECONNECT_WITHIN_S = 2.0


@dataclass(slots=True)
class Reader(threading.Thread):
    """One person's answer, read by the client library to its end, through whatever happens."""

    url: str
    key: str
    conversation: str
    text: str = ""
    generation_id: str = ""
    events: list[Event] = field(default_factory=list[Event])
    times: list[float] = field(default_factory=list[float])
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        threading.Thread.__init__(self, daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            answer = Client(self.url, self.key).send(self.conversation, "hello", max_tokens=WORDS)
            for event in answer:
                if not isinstance(event, Status):
                    self.take(event)
                self.generation_id = answer.generation_id
        except BaseException as failure:  # noqa: BLE001 - the test's own thread reports it
            self.failure = failure

    def take(self, event: Event) -> None:
        self.times.append(time.monotonic())
        self.events.append(event)
        if isinstance(event, Delta):
            self.text += event.text
        elif isinstance(event, Snapshot):
            assert event.text.startswith(self.text), "shown text changed"
            self.text = event.text

    def longest_gap(self, since: float) -> float:
        """The longest silence that ended after ``since``."""
        return max(after - before for before, after in zip(self.times, self.times[1:], strict=False) if after > since)


def test_sigterm_under_200_live_streams(make_server: Callable[[str], Server]) -> None:
    server = make_server(_config())
    person = server.person()
    readers = [Reader(server.url, server.key(), person.new_conversation()) for _ in range(STREAMS)]
    for reader in readers:
        reader.start()
    eventually(lambda: all(len(reader.text) > 10 for reader in readers), within_s=60, what="every answer has begun")

    port = urlsplit(server.url).port
    assert port is not None
    told: list[float] = []
    onlooker = threading.Thread(target=_until_told, args=(server.person(), readers[-1].generation_id, told), daemon=True)
    onlooker.start()
    eventually(lambda: person.gauge("antiphon_streams_open") > STREAMS, within_s=10, what="one more reads")
    assert not any(isinstance(reader.events[-1], Done) for reader in readers), "all of them are live"
    stopped_at = time.monotonic()
    assert server.stop() == 0
    ended_s = time.monotonic() - stopped_at
    onlooker.join(timeout=10)
    assert told[0] - stopped_at < RECONNECT_WITHIN_S
    server.port = port
    server.start()
    ready_s = time.monotonic() - stopped_at

    for reader in readers:
        reader.join(timeout=120)
    assert [reader.failure for reader in readers if reader.failure is not None] == []
    _whole(server.person(), readers)
    gaps = sorted(reader.longest_gap(stopped_at) for reader in readers)
    p99 = gaps[int(STREAMS * 0.99) - 1]
    print(
        f"stop to end {ended_s:.1f} s, to ready {ready_s:.1f} s; gaps p50 {gaps[STREAMS // 2]:.2f} s, p99 {p99:.2f} s, max {gaps[-1]:.2f} s"
    )
    assert p99 < GAP_P99_S, "nothing is lost, but readers wait longer for the restart than promised"


def _config() -> str:
    return (
        reference_config(output_tokens_per_s=16)
        .replace("drain_seconds = 5", "drain_seconds = 3")
        .replace("blocks = 2048", "blocks = 16384")
        .replace("prefill_tokens_per_s = 20000", "prefill_tokens_per_s = 80000")
        .replace("concurrency = 1000", "concurrency = 1000\nttft_limit_ms = 60000")
    )


def _until_told(person: Person, generation_id: str, told: list[float]) -> None:
    """Note when the server asks this reader to come back."""
    told.extend(time.monotonic() for event in person.events(generation_id) if event.kind == "reconnect")


def _whole(person: Person, readers: list[Reader]) -> None:
    """Each has exactly one end and the text that is kept."""
    for reader in readers:
        assert sum(isinstance(event, Done) for event in reader.events) == 1
        assert isinstance(reader.events[-1], Done)
        generation = person.generation(reader.generation_id)
        assert generation["status"] == "complete"
        assert reader.text == generation["text"]
        assert len(reader.text.split()) == WORDS
