"""SIGTERM with many live streams, and a new server on the same folder: nothing lost, nothing doubled, a short gap."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from antiphon.client.errors import ProtocolError
from antiphon.client.sse import ServerEvent
from tests.faults.kills import KilledServer
from tests.system.served import Person, Reading

pytestmark = [pytest.mark.system, pytest.mark.slow]


@dataclass
class Reader:
    """Reads one answer over as many connections as it takes, and measures its longest silence."""

    person: Person
    generation_id: str
    reading: Reading = field(default_factory=Reading)
    longest_gap_s: float = 0.0
    reconnects: int = 0
    trouble: str = ""

    def _take(self, event: ServerEvent) -> None:
        try:
            self.reading.take(event)
        except AssertionError as broken:
            raise RuntimeError(str(broken)) from broken

    def run(self) -> None:
        last = time.monotonic()
        try:
            while not self.reading.ended:
                try:
                    with contextlib.closing(self.person.events(self.generation_id, after=self.reading.last_id or None)) as events:
                        for event in events:
                            if event.kind in {"status", "title"}:
                                continue
                            if event.kind == "reconnect":
                                self.reconnects += 1
                                time.sleep(json.loads(event.data)["after_ms"] / 1000)
                                break
                            before = len(self.reading.text)
                            self._take(event)
                            if len(self.reading.text) > before or self.reading.ended:
                                now = time.monotonic()
                                self.longest_gap_s, last = max(self.longest_gap_s, now - last), now
                except (httpx.HTTPError, ProtocolError, AssertionError):
                    time.sleep(0.05)
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self.trouble = repr(error)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("streams", [8, 200])
def test_a_restart_loses_and_doubles_nothing(tmp_path: Path, streams: int) -> None:
    server = KilledServer(tmp_path / "data", "none")
    server.config = server.config.replace("output_tokens_per_s = 150", "output_tokens_per_s = 20").replace(
        "drain_seconds = 5", "drain_seconds = 0.5"
    )
    server.start()
    try:
        headers = {"Authorization": f"Bearer {server.key()}"}
        limits = httpx.Limits(max_connections=streams + 20)
        with httpx.Client(base_url=server.url, headers=headers, timeout=30, limits=limits) as http:
            person = Person(server, http)
            conversations = [person.new_conversation() for _ in range(streams)]
            sent = [person.send(one, "The same question", params={"max_tokens": 160, "seed": 1}) for one in conversations]
            readers = [Reader(person, one["generation_id"]) for one in sent]
            threads = [threading.Thread(target=reader.run, daemon=True) for reader in readers]
            for thread in threads:
                thread.start()
            while any(len(reader.reading.text) < 40 for reader in readers):
                time.sleep(0.05)
            assert server.process is not None
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=20) == 0
            server.start()
            for thread in threads:
                thread.join(120)
            assert not [reader.trouble for reader in readers if reader.trouble]
            texts = {reader.reading.text for reader in readers}
            assert len(texts) == 1, "every answer is the undisturbed one"
            for conversation, one in zip(conversations, sent, strict=True):
                assert person.message(conversation, one["message_id"])["content"] in texts
            gaps = sorted(reader.longest_gap_s for reader in readers)
            print(f"{streams} streams: longest gap p50 {gaps[len(gaps) // 2]:.2f} s, p99 {gaps[int(len(gaps) * 0.99) - 1]:.2f} s")
            assert sum(reader.reconnects > 0 for reader in readers) > streams // 2
    finally:
        server.end()
