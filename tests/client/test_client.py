"""The client over real sockets: answers that survive lost connections, refusals, cancelling."""

from __future__ import annotations

import json

import pytest

from antiphon.client import ApiError, Client, ClientError, ConnectionLost, Done, ProtocolError, Status
from antiphon.client.answer import Answer, Opening
from antiphon.client.transport import Transport
from tests.client.scripted_server import Scene, scripted

META = b'id: 1-1\nevent: meta\ndata: {"generation_id":"gen_1","model":"m","requested_model":"m","new":1}\n\n'
DONE = b'id: 2-4\nevent: done\ndata: {"finish_reason":"stop","output_tokens":2}\n\n'


def done(event_id: str) -> bytes:
    return DONE.replace(b"2-4", event_id.encode())


def delta(event_id: str, text: str) -> bytes:
    return f"id: {event_id}\nevent: delta\ndata: {json.dumps({'text': text})}\n\n".encode()


def answer(url: str, waits: list[float] | None = None) -> Answer:
    opening = Opening("/v1/conversations/conv_1/messages", {"content": "hi"}, "key-1")
    return Answer(Transport(url, "ak_1", timeout_s=5), opening, sleep=(waits if waits is not None else []).append, random=lambda: 1.0)


def test_a_lost_connection_goes_on_after_the_last_event() -> None:
    status = b'event: status\ndata: {"state":"queued","position":2,"eta_ms":100}\n\n'
    waits: list[float] = []
    with scripted(
        Scene(b"retry: 2000\n\n" + META + status + delta("1-2", "Hel") + b"id: 1-3\nevent: del"),
        Scene(b"", status=503),
        Scene(delta("1-2", "Hel") + b"event: novelty\ndata: x\n\n" + delta("2-3", "lo") + DONE),
    ) as server:
        reply = answer(server.url, waits)
        events = list(reply)
    assert reply.text == "Hello"
    assert events[1] == Status("queued", position=2, eta_ms=100)
    assert isinstance(events[-1], Done)
    assert len([event for event in events if event.__class__.__name__ == "Delta"]) == 2
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "1-2", "1-2"]
    assert server.requests[1].path == "/v1/generations/gen_1/stream"
    assert waits == [0.4, 0.5]


def test_the_opening_is_repeated_with_its_own_key() -> None:
    with scripted(Scene(b""), Scene(META + done("1-2"))) as server:
        list(answer(server.url))
    assert [request.method for request in server.requests] == ["POST", "POST"]
    assert {request.headers["idempotency-key"] for request in server.requests} == {"key-1"}


def test_reconnect_says_when_to_come_back() -> None:
    waits: list[float] = []
    with scripted(
        Scene(META + b'event: reconnect\ndata: {"after_ms":1500}\n\n' + delta("1-2", "never read")), Scene(done("1-2"))
    ) as server:
        reply = answer(server.url, waits)
        list(reply)
    assert waits == [1.5]
    assert reply.text == ""


def test_waits_are_drawn_at_random() -> None:
    for share, expected in ((0.0, [0.1, 0.125]), (0.5, [0.25, 0.3125])):
        waits: list[float] = []
        with scripted(Scene(META), Scene(b"", status=502), Scene(done("2-2"))) as server:
            opening = Opening("/v1/conversations/conv_1/messages", {}, "key-1")
            list(Answer(Transport(server.url, "ak_1", timeout_s=5), opening, sleep=waits.append, random=lambda share=share: share))
        assert waits == expected


def test_a_gap_is_replayed_and_one_that_stays_is_bridged_by_a_snapshot() -> None:
    gap = META + delta("1-2", "a") + delta("1-4", "c")
    snapshot = b'id: 1-4\nevent: snapshot\ndata: {"text":"abc"}\n\n'
    with scripted(Scene(gap), Scene(delta("1-3", "b") + delta("1-4", "c") + done("1-5"))) as server:
        reply = answer(server.url)
        list(reply)
    assert reply.text == "abc"
    with scripted(Scene(gap), Scene(gap), Scene(snapshot + done("1-5"))) as server:
        reply = answer(server.url)
        list(reply)
    assert reply.text == "abc"
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "1-2", "999999999999"]


def test_the_end_as_the_store_has_it_has_no_id() -> None:
    stored = b'event: snapshot\ndata: {"text":"abc"}\n\n' + DONE.partition(b"\n")[2]
    with scripted(Scene(META + delta("1-2", "a")), Scene(stored)) as server:
        reply = answer(server.url)
        events = list(reply)
    assert reply.text == "abc"
    assert isinstance(events[-1], Done)


def test_a_snapshot_replaces_the_text() -> None:
    snapshot = b'id: 2-3\nevent: snapshot\ndata: {"text":"Hello, all"}\n\n'
    with scripted(Scene(META + delta("1-2", "Hel") + snapshot + DONE)) as server:
        reply = answer(server.url)
        list(reply)
    assert reply.text == "Hello, all"


def test_a_server_that_is_not_there_is_reported_soon(free_port: int) -> None:
    waits: list[float] = []
    with pytest.raises(ConnectionLost):
        list(answer(f"http://127.0.0.1:{free_port}", waits))
    assert sum(waits) < 3


def test_a_server_that_stays_away_is_given_up() -> None:
    waits: list[float] = []
    with scripted(Scene(META), *[Scene(b"") for _ in range(30)]) as server, pytest.raises(ConnectionLost):
        list(answer(server.url, waits))
    assert 60 <= sum(waits) < 70
    assert max(waits) == 5.0


def test_a_problem_is_an_error_with_its_code() -> None:
    problem = {"type": "about:blank", "title": "x", "status": 429, "code": "high_demand", "detail": "Busy.", "retry_after_ms": 900}
    with scripted(Scene(json.dumps(problem).encode(), 429, "application/problem+json")) as server, pytest.raises(ApiError) as caught:
        Client(server.url, "ak_1").me()
    assert (caught.value.status, caught.value.code, caught.value.retry_after_ms) == (429, "high_demand", 900)
    assert server.requests[0].headers["authorization"] == "Bearer ak_1"


def test_answers_of_something_else_are_refused() -> None:
    with scripted(Scene(b"<html>"), Scene(b"<html>", 502), Scene(META.replace(b"gen_1", b'"'))) as server:
        with pytest.raises(ProtocolError):
            Client(server.url, "ak_1").models()
        with pytest.raises(ApiError):
            Client(server.url, "ak_1").models()
        with pytest.raises(ProtocolError):
            list(answer(server.url))


def test_cancel_says_how_far_it_read() -> None:
    cancelled = json.dumps({"id": "gen_1", "message_id": "msg_1", "status": "cancelled", "text": "Hel"}).encode()
    with scripted(Scene(META + delta("1-2", "Hel")), Scene(cancelled, media="application/json")) as server:
        reply = answer(server.url)
        for event in reply:
            if event.__class__.__name__ == "Delta":
                break
        assert reply.cancel().text == "Hel"
    assert json.loads(server.requests[1].body) == {"seen_id": "1-2"}


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8484", "http://"])
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(ClientError):
        Client(url, "ak_1")
