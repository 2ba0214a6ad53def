"""The gateway through the whole product: a smaller model that is named wherever it answers, and cancels that leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.system.served import TIMING, Person, Reading, Server, eventually

pytestmark = pytest.mark.system

POOL = """
[[pools]]
name = "{name}"
model = "reference-{name}"
engine = "reference"
output_tokens_per_s = {rate}
prefill_tokens_per_s = 20000
context_tokens = 1024
blocks = {blocks}
{extra}
"""
PLAN = """
[[plans]]
name = "free"
models = ["large", "small"]
tokens_per_minute = 100000000
requests_per_minute = 1000000
concurrency = 1000
ttft_limit_ms = 600000
max_output_tokens = 900
caps = [{ model = "large", messages = 500, window_seconds = 7200 }]
"""
SMALL = POOL.format(name="small", rate=400, blocks=512, extra="")
FALLS_BACK = POOL.format(name="large", rate=50, blocks=34, extra='queue_limit = 1\ndowngrade_to = "small"')


def large_used(person: Person) -> int:
    """Of the cap on messages with the large model."""
    (cap,) = [one for one in person.http.get("/v1/usage").json()["limits"] if one.get("model") == "large"]
    return int(cap["used"])


def streamed(person: Person, conversation: str, content: str) -> tuple[dict[str, str], list[tuple[str, dict[str, object]]]]:
    """Send, and read the stream of the answer to the send itself; its meta, and all."""
    events: list[tuple[str, dict[str, object]]] = []
    kind = ""
    body = {"content": content, "params": {"max_tokens": 8}}
    with person.http.stream("POST", f"/v1/conversations/{conversation}/messages", json=body) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((kind, json.loads(line.removeprefix("data: "))))
    meta = next(data for kind, data in events if kind == "meta")
    return {name: str(value) for name, value in meta.items()}, events


def ledger_models(server: Server, generation_id: str) -> tuple[str, str, str] | None:
    with contextlib.closing(sqlite3.connect(f"file:{server.data / 'antiphon.db'}?mode=ro", uri=True)) as database:
        query = "SELECT model, requested_model, pool FROM ledger WHERE generation_id = ?"
        return database.execute(query, (generation_id,)).fetchone()


def test_a_smaller_model_is_named_everywhere_and_spends_nothing_of_the_large_ones_cap(make_server: Callable[[str], Server]) -> None:
    server = make_server(TIMING + PLAN + FALLS_BACK + SMALL)
    person = server.person()
    holders: list[dict[str, str]] = []
    for number in range(2):  # the first runs, the second waits, and the line is full
        holders.append(person.send(person.new_conversation(), f"{number} hold", params={"max_tokens": 800}))
        person.read_until(holders[0]["generation_id"], lambda reading: reading.text != "")
    used, counted = large_used(person), person.gauge("antiphon_downgrades_total")
    assert used == 2

    conversation = person.new_conversation()
    meta, events = streamed(person, conversation, "And me?")

    assert (meta["model"], meta["requested_model"]) == ("reference-small", "reference-large")
    told = [data for kind, data in events if kind == "status" and data["state"] == "downgraded"]
    assert told == [{"state": "downgraded", "from": "reference-large", "to": "reference-small", "reason": "high_demand"}]
    assert (events[-1][0], events[-1][1]["model"]) == ("done", "reference-small")
    message = person.message(conversation, meta["message_id"])
    assert (message["model"], message["requested_model"]) == ("reference-small", "reference-large")
    route = person.generation(meta["generation_id"])["route"]
    assert route == {"requested": "reference-large", "served": "reference-small", "rule": "downgrade", "reason": "high_demand"}
    eventually(lambda: ledger_models(server, meta["generation_id"]) is not None, within_s=30, what="the usage record")
    assert ledger_models(server, meta["generation_id"]) == ("reference-small", "reference-large", "small")
    assert large_used(person) == used
    assert person.gauge("antiphon_downgrades_total") == counted + 1

    # The large one is free again, and still in high demand a moment ago: the conversation does not flip back at once.
    for holder in holders:
        person.cancel(holder["generation_id"])
    eventually(lambda: person.gauge("antiphon_requests_running") == 0, within_s=5, what="the holders are gone")
    again, _ = streamed(person, conversation, "And now?")
    assert again["model"] == "reference-small"
    elsewhere, _ = streamed(person, person.new_conversation(), "And a new one?")
    assert elsewhere["model"] == "reference-large"


def completion_that_is_left(person: Person, after_s: float) -> None:
    """A client of completions that goes away."""
    body = {"model": "large", "messages": [{"role": "user", "content": f"go {after_s}"}], "stream": True, "max_tokens": 60}
    left_at = time.monotonic() + after_s
    with contextlib.suppress(httpx.HTTPError), person.http.stream("POST", "/v1/chat/completions", json=body, timeout=after_s) as answer:
        for _ in answer.iter_raw():
            if time.monotonic() > left_at:
                return


def turn_that_is_stopped(person: Person, after_s: float) -> None:
    sent = person.send(person.new_conversation(), f"stop {after_s}", model="large", params={"max_tokens": 60})
    time.sleep(after_s)
    assert person.cancel(sent["generation_id"]).status_code == 200


@pytest.mark.slow
def test_two_hundred_cancels_in_all_phases_leave_every_counter_and_block_as_it_was(make_server: Callable[[str], Server]) -> None:
    """Eight or so run at once, the others wait: they go while they wait, while their prompt is read, and in mid-answer."""
    server = make_server(TIMING + PLAN + POOL.format(name="large", rate=50, blocks=48, extra="queue_limit = 400") + SMALL)
    person = server.person()
    rng = random.Random(7)
    gauges = ("antiphon_requests_running", "antiphon_requests_waiting", "antiphon_streams_open")

    def state() -> dict[str, object]:
        pool = person.http.get("/v1/admin/pools").json()[0]
        replica = pool["replicas"][0]
        limits = person.http.get("/v1/usage").json()["limits"]
        return {
            "gauges": [person.gauge(name) for name in gauges],
            "queue": sum(band["waiting"] for band in pool["queue"]),
            "replica": (replica["running"], replica["waiting"], replica["blocks"]["held"]),
            "blocks": replica["blocks"]["free"] + replica["blocks"]["cached"],
            "concurrency": [one["used"] for one in limits if one["name"] == "concurrency"],
        }

    before = state()
    acts = [(completion_that_is_left if number % 2 else turn_that_is_stopped, rng.uniform(0.0, 3.0)) for number in range(200)]
    with ThreadPoolExecutor(100) as threads:
        doing = [threads.submit(act, person, after_s) for act, after_s in acts]
        eventually(lambda: person.gauge("antiphon_requests_waiting") > 5, within_s=10, what="some wait")
        for one in doing:
            one.result()
    eventually(lambda: state() == before, within_s=5, what=f"everything as it was: {state()} was {before}")
    reading: Reading = person.read(person.send(person.new_conversation(), "and after", params={"max_tokens": 8})["generation_id"])
    assert reading.end["finish_reason"] == "length"
