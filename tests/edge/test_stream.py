"""Event streams over a real connection: every kind of cursor, every end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import httpx
import pytest
from starlette.types import Message

from antiphon.core.events import Delta, Done, LogEntry
from antiphon.core.generation import GenerationStatus
from antiphon.core.ids import GenerationId, IdKind
from antiphon.core.telemetry import STREAMS_OPEN
from antiphon.edge.sse import SseDecoder, SseEvent
from antiphon.edge.stream import Viewer
from antiphon.inference.gateway import Gateway
from antiphon.stores.conversations.base import Owner
from tests.awake import awake_s
from tests.edge.site import Person, Site

LIVE = {"status", "title", "reconnect"}


def text_of(events: list[SseEvent]) -> str:
    text = ""
    for event in events:
        data = json.loads(event.data)
        if event.name == "delta":
            text += data["text"]
        elif event.name == "snapshot":
            text = data["text"]
    return text


def logged(events: list[SseEvent]) -> list[SseEvent]:
    return [event for event in events if event.name not in LIVE]


@pytest.fixture(scope="module")
async def finished(ada: Person) -> dict[str, str]:
    """A generation that has ended."""
    sent = await ada.send(await ada.conversation(), params={"max_tokens": 40})
    await ada.read(sent["generation_id"])
    return sent


async def test_the_post_is_the_stream(ada: Person) -> None:
    conversation = await ada.conversation()
    body = {"content": "hello", "model": "quick", "params": {"max_tokens": 8}}
    answer = await ada.http.post(f"/v1/conversations/{conversation}/messages", json=body)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert answer.content.startswith(b"retry: 2000\n\n")
    events = logged(SseDecoder().feed(answer.content))
    assert events[0].name == "meta"
    assert events[-1].name == "done"
    assert [int(event.last_event_id.split("-")[1]) for event in events] == list(range(1, len(events) + 1))
    path = (await ada.http.get(f"/v1/conversations/{conversation}/messages")).json()
    assert path["data"][-1]["content"] == text_of(events) != ""


async def test_every_place_of_a_finished_stream(ada: Person, finished: dict[str, str]) -> None:
    whole = logged(await ada.read(finished["generation_id"]))
    for index, event in enumerate(whole[:-1]):
        epoch, seq = event.last_event_id.split("-")
        for cursor in (f"{epoch}-{seq}", seq):
            assert await ada.read(finished["generation_id"], cursor) == whole[index + 1 :]
    assert await ada.read(finished["generation_id"], "0") == whole
    by_query = await ada.http.get(f"/v1/generations/{finished['generation_id']}/stream?after={whole[0].last_event_id}")
    assert SseDecoder().feed(by_query.content) == whole[1:]


@pytest.mark.parametrize("cursor", ["99-3", "999999", "1-999999", "garbage", "-1", "1-", "x" * 10_000, "1-2-3"])
async def test_a_cursor_of_nowhere_gets_one_snapshot(ada: Person, finished: dict[str, str], cursor: str) -> None:
    whole = logged(await ada.read(finished["generation_id"]))
    events = await ada.read(finished["generation_id"], cursor)
    assert [event.name for event in events] == ["snapshot", "done"]
    assert text_of(events) == text_of(whole)
    assert events[-1] == whole[-1]


async def test_nothing_follows_the_end(ada: Person, finished: dict[str, str]) -> None:
    whole = logged(await ada.read(finished["generation_id"]))
    epoch, seq = whole[-1].last_event_id.split("-")
    for cursor in (f"{epoch}-{seq}", seq):
        answer = await ada.http.get(f"/v1/generations/{finished['generation_id']}/stream", headers={"Last-Event-ID": cursor})
        assert (answer.status_code, answer.content) == (204, b"")


async def test_after_the_log_has_expired_the_store_answers(ada: Person, site: Site) -> None:
    sent = await ada.send(await ada.conversation())
    whole = logged(await ada.read(sent["generation_id"]))
    await site.log.discard(GenerationId(sent["generation_id"]))
    for cursor in (None, whole[2].last_event_id, whole[-1].last_event_id):
        events = await ada.read(sent["generation_id"], cursor)
        assert [event.name for event in events] == ["snapshot", "done"]
        assert text_of(events) == text_of(whole)
        assert json.loads(events[-1].data) == json.loads(whole[-1].data)


async def test_foreign_and_unknown_streams_are_the_same(ada: Person, bob: Person, finished: dict[str, str]) -> None:
    foreign = await bob.http.get(f"/v1/generations/{finished['generation_id']}/stream")
    unknown = await bob.http.get("/v1/generations/gen_0193b5a0-0000-7000-8000-000000000000/stream")
    malformed = await bob.http.get("/v1/generations/7/stream")
    bodies = [{**answer.json(), "request_id": ""} for answer in (foreign, unknown, malformed)]
    assert [answer.status_code for answer in (foreign, unknown, malformed)] == [404, 404, 404]
    assert bodies[0] == bodies[1] == bodies[2]


async def test_a_live_stream_survives_reconnects(ada: Person) -> None:
    """Take a few events, drop the connection, resume, many times over: nothing is repeated, nothing is missing."""
    sent = await ada.send(await ada.conversation(), model="slow", params={"max_tokens": 500})
    seen: list[SseEvent] = []
    connections = 0
    while not seen or seen[-1].name != "done":
        connections += 1
        headers = {"Last-Event-ID": seen[-1].last_event_id} if seen else {}
        async with ada.http.stream("GET", f"/v1/generations/{sent['generation_id']}/stream", headers=headers) as answer:
            decoder, taken = SseDecoder(), 0
            async for chunk in answer.aiter_raw():
                fresh = logged(decoder.feed(chunk))
                seen += fresh
                taken += len(fresh)
                if taken > 3 and connections < 6:
                    break
                if taken > 3:
                    await ada.http.post(f"/v1/generations/{sent['generation_id']}/cancel", json={})
    assert connections == 6
    assert [int(event.last_event_id.split("-")[1]) for event in seen] == list(range(1, len(seen) + 1))
    assert text_of(seen) == text_of(logged(await ada.read(sent["generation_id"])))


async def test_a_new_title_is_told_on_open_streams(ada: Person) -> None:
    conversation = await ada.conversation()
    sent = await ada.send(conversation, model="slow", params={"max_tokens": 500})
    other = await ada.send(await ada.conversation(), model="slow", params={"max_tokens": 500})
    elsewhere = asyncio.create_task(ada.read(other["generation_id"]))
    decoder, events = SseDecoder(), list[SseEvent]()
    async with ada.http.stream("GET", f"/v1/generations/{sent['generation_id']}/stream") as answer:
        async for chunk in answer.aiter_raw():
            before, events = len(logged(events)), [*events, *decoder.feed(chunk)]
            if before < 4 <= len(logged(events)):
                renamed = await ada.http.patch(f"/v1/conversations/{conversation}", json={"title": "Mine\nalone"})
                assert renamed.status_code == 200
            if any(event.name == "title" for event in events) and not elsewhere.done():
                for turn in (sent, other):
                    await ada.http.post(f"/v1/generations/{turn['generation_id']}/cancel", json={})
    titles = [event for event in events if event.name == "title"]
    assert [json.loads(event.data) for event in titles] == [{"title": renamed.json()["title"]}]
    assert events.index(titles[0]) > 3
    assert events[-1].name == "done"
    assert "title" not in {event.name for event in (*await elsewhere, *await ada.read(sent["generation_id"]))}


async def test_readers_share_one_tail_and_leave_nothing(ada: Person, site: Site) -> None:
    sent = await ada.send(await ada.conversation(), model="slow", params={"max_tokens": 60})
    texts = await asyncio.gather(*(ada.read(sent["generation_id"]) for _ in range(20)))
    assert len({text_of(events) for events in texts}) == 1
    await _until_open(site, 0)
    assert not site.app.streams.tails.running


async def test_a_gone_reader_is_noticed_at_once_and_stops_nothing(ada: Person, site: Site) -> None:
    await _until_open(site, 0)
    sent = await ada.send(await ada.conversation(), model="slow", params={"max_tokens": 500})
    async with ada.http.stream("GET", f"/v1/generations/{sent['generation_id']}/stream") as answer:
        chunks = answer.aiter_raw()
        await anext(chunks)
        assert await _streams_open(site) == 1
    assert await _until_open(site, 0) < 0.5
    assert (await ada.http.get(f"/v1/generations/{sent['generation_id']}")).json()["status"] == "running"
    await ada.http.post(f"/v1/generations/{sent['generation_id']}/cancel", json={})
    assert logged(await ada.read(sent["generation_id"]))[-1].name == "done"


@pytest.fixture
async def waiting(ada: Person, site: Site) -> AsyncIterator[GenerationId]:
    """A generation that nobody writes: its row is there, its log is open and empty, and the test may fill it as epoch 1."""
    generation = GenerationId(site.ids.new(IdKind.GENERATION))
    sent = await ada.send(await ada.conversation())
    await ada.read(sent["generation_id"])
    row = site.state.generations[GenerationId(sent["generation_id"])]
    far = row.created_at.replace(year=2999)
    site.state.generations[generation] = replace(row, id=generation, status=GenerationStatus.RUNNING, lease_until=far)
    await site.log.open(generation, 1)
    yield generation
    await site.log.discard(generation)
    del site.state.generations[generation]


def deltas(first: int, count: int) -> list[LogEntry]:
    return [LogEntry(1, seq, Delta(f"{seq} ")) for seq in range(first, first + count)]


END = Done("stop", 1, 0, 1, 0, 1, 1, None, "m", "m")


async def test_silence_is_broken_by_pings(ada: Person, waiting: GenerationId) -> None:
    received = b""
    async with ada.http.stream("GET", f"/v1/generations/{waiting}/stream") as answer:
        async for chunk in answer.aiter_raw():
            received += chunk
            if received.count(b": ping\n\n") == 2:
                break
    assert received == b"retry: 2000\n\n: ping\n\n: ping\n\n"


async def test_a_long_log_is_replayed_whole(ada: Person, site: Site, waiting: GenerationId) -> None:
    """Longer than a page and than the ring: a reader that comes late misses nothing, and neither does one who was there."""
    there = asyncio.create_task(ada.read(waiting))
    await asyncio.sleep(0.1)
    for first in range(1, 2001, 100):
        await site.log.append(waiting, deltas(first, 100))
        await asyncio.sleep(0)
    late = asyncio.create_task(ada.read(waiting))
    resumed = asyncio.create_task(ada.read(waiting, "1-7"))
    await asyncio.sleep(0.05)
    await site.log.append(waiting, [LogEntry(1, 2001, END)])
    expected = "".join(f"{seq} " for seq in range(1, 2001))
    assert text_of(await there) == expected
    whole = await late
    assert [event.name for event in whole] == ["delta"] * 2000 + ["done"]
    assert text_of(whole) == expected
    assert text_of(await resumed) == expected.removeprefix("1 2 3 4 5 6 7 ")


async def test_a_slow_reader_gets_one_snapshot(ada: Person, site: Site, waiting: GenerationId) -> None:
    """Straight on the ASGI interface, where the test decides when a send returns."""
    may_send, left, stuck = asyncio.Event(), asyncio.Event(), asyncio.Event()
    may_send.set()
    decoder, events = SseDecoder(), list[SseEvent]()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if not may_send.is_set():
            stuck.set()
        await may_send.wait()
        events.extend(decoder.feed(message.get("body", b"")))

    viewer = Viewer(Owner(site.tenant.id, ada.user.id), waiting, None, ())
    streaming = asyncio.create_task(site.app.streams.stream(viewer)({"type": "http"}, receive, send))
    await site.log.append(waiting, deltas(1, 3))
    await _until(lambda: len(events) == 3)
    may_send.clear()
    await site.log.append(waiting, deltas(4, 1))
    await stuck.wait()
    for first in range(5, 1005, 50):
        await site.log.append(waiting, deltas(first, 50))
        await asyncio.sleep(0.001)
    may_send.set()
    await site.log.append(waiting, [LogEntry(1, 1005, END)])
    async with asyncio.timeout(30):
        await streaming
    assert [event.name for event in events] == ["delta"] * 4 + ["snapshot", "done"]
    assert text_of(events) == "".join(f"{seq} " for seq in range(1, 1005))
    assert [event.last_event_id for event in events[-2:]] == ["1-1004", "1-1005"]


async def test_a_reader_that_takes_nothing_is_given_up(
    ada: Person, site: Site, waiting: GenerationId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.edge.connection.SEND_SECONDS", 0.1)

    async def never(*_: object) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    viewer = Viewer(Owner(site.tenant.id, ada.user.id), waiting, None, ())
    async with asyncio.timeout(30):
        await site.app.streams.stream(viewer)({"type": "http"}, never, never)
    assert not site.app.streams.tails.running


async def test_a_log_that_vanishes_sends_its_readers_to_the_store(ada: Person, site: Site, waiting: GenerationId) -> None:
    await site.log.append(waiting, deltas(1, 2))
    decoder, events = SseDecoder(), list[SseEvent]()
    async with ada.http.stream("GET", f"/v1/generations/{waiting}/stream") as answer:
        async for chunk in answer.aiter_raw():
            there = len(events) >= 2
            events += decoder.feed(chunk)
            if not there and len(events) >= 2:
                await site.log.discard(waiting)
    assert [event.name for event in events] == ["delta", "delta", "reconnect"]


async def test_a_generation_whose_log_comes_late(ada: Person, site: Site, waiting: GenerationId) -> None:
    await site.log.discard(waiting)
    reading = asyncio.create_task(ada.read(waiting))
    await asyncio.sleep(0.3)
    await site.log.open(waiting, 1)
    await site.log.append(waiting, [*deltas(1, 2), LogEntry(1, 3, END)])
    async with asyncio.timeout(30):
        assert [event.name for event in await reading] == ["delta", "delta", "done"]


async def test_prefill_is_shown_before_the_first_text(ada: Person) -> None:
    sent = await ada.send(await ada.conversation(), "q" * 2500, model="slow", params={"max_tokens": 4})
    events = await ada.read(sent["generation_id"])
    names = [event.name for event in events]
    states = [json.loads(event.data) for event in events if event.name == "status"]
    assert states and all(state["state"] in {"queued", "prefill"} for state in states)
    assert max(index for index, name in enumerate(names) if name == "status") < names.index("delta")
    assert all(event.last_event_id in {"", "1-1"} for event in events if event.name == "status")


async def test_cancel_while_reading(ada: Person) -> None:
    sent = await ada.send(await ada.conversation(), model="slow", params={"max_tokens": 500})
    reading = asyncio.create_task(ada.read(sent["generation_id"]))
    await asyncio.sleep(0.2)
    answer = await ada.http.post(f"/v1/generations/{sent['generation_id']}/cancel", json={})
    events = logged(await reading)
    assert answer.json()["status"] == "cancelled"
    assert events[-1].name == "done"
    assert json.loads(events[-1].data)["finish_reason"] == "cancelled"
    assert answer.json()["text"] == text_of(events)
    again = await ada.http.post(f"/v1/generations/{sent['generation_id']}/cancel", json={"seen_id": events[1].last_event_id})
    assert again.json() == answer.json()


async def test_a_revoked_key_ends_its_stream(ada: Person, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.edge.standing.RECHECK_SECONDS", 0.1)
    monkeypatch.setattr("antiphon.edge.auth.CACHE_SECONDS", 0.05)
    made = (await ada.http.post("/v1/keys", json={"name": "short"})).json()
    sent = await ada.send(await ada.conversation(), model="slow", params={"max_tokens": 500})
    client = site.client(Authorization=f"Bearer {made['key']}")
    async with asyncio.timeout(30):
        async with client.stream("GET", f"/v1/generations/{sent['generation_id']}/stream") as answer:
            assert (await ada.http.delete(f"/v1/keys/{made['id']}")).status_code == 204
            events = logged(SseDecoder().feed(await answer.aread()))
    assert events[-1].name != "done"
    assert (await client.get("/v1/me")).status_code == 401
    await ada.http.post(f"/v1/generations/{sent['generation_id']}/cancel", json={})


async def test_drain_sends_readers_elsewhere(gateway: Gateway) -> None:
    site = Site(gateway)
    await site.open()
    try:
        person = await site.person("eve")
        sent = await person.send(await person.conversation(), model="slow", params={"max_tokens": 500})
        reading = asyncio.create_task(person.read(sent["generation_id"]))
        await site.until_text(sent["generation_id"])
        await _until(lambda: site.app.streams.tails.running == 1)
        site.services.state.drain()
        async with asyncio.timeout(30):
            events = await reading
        assert events[-1].name == "reconnect"
        assert json.loads(events[-1].data)["after_ms"] >= 500
        seen = logged(events)  # none, where the drain came before the reader's first event
        returning = asyncio.create_task(person.read(sent["generation_id"], seen[-1].last_event_id if seen else None))
        held = len(text_of(events))
        await site.until_text(sent["generation_id"], held + 20)
        site.services.state.leave()
        async with asyncio.timeout(30):
            more = await returning
        assert more[-1].name == "reconnect"
        assert logged(more)[0].name == ("delta" if seen else "meta")
        assert (await person.http.get("/readyz")).status_code == 503
        assert (await person.http.get("/healthz")).status_code == 200
    finally:
        await site.close()


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


async def _until_open(site: Site, streams: int) -> float:
    """Awake seconds until so many are open."""
    began = awake_s()
    while await _streams_open(site) != streams:
        assert awake_s() - began < 30
        await asyncio.sleep(0.01)
    return awake_s() - began


async def _streams_open(site: Site) -> int:
    async with httpx.AsyncClient(base_url=site.url, trust_env=False, verify=False) as client:
        text = (await client.get("/metrics")).text
    line = next(line for line in text.splitlines() if line.startswith(STREAMS_OPEN.name + " "))
    return int(float(line.split()[1]))
