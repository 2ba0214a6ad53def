"""The encoder, and the decoder against the corner cases of the web platform tests (eventsource/format-*)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.events import (
    Delta,
    Done,
    Downgraded,
    Failed,
    LogEntry,
    Meta,
    PrefillProgress,
    Queued,
    Reconnect,
    Snapshot,
    Source,
    Sources,
    Title,
)
from antiphon.edge.sse import PING, RETRY, SseDecoder, SseEvent, encode_entry, encode_live, encode_logged


def decoded(data: bytes) -> list[tuple[str, str]]:
    return [(event.name, event.data) for event in SseDecoder().feed(data)]


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [("message", "a")]),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\n", [("message", "a"), ("message", "b"), ("message", "c")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [("message", "a")]),
        (b"data:a\ndata: b\ndata:  c\ndata\n\n", [("message", "a\nb\n c\n")]),
        (b"data\n\n", [("message", "")]),
        (b"data:\n\n", [("message", "")]),
        (b"\n\n\n", []),
        (b"event: x\n\n", []),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a"), ("message", "b")]),
        (b"event\ndata: a\n\n", [("message", "a")]),
        (b": comment\ndata: a\n:\n\n", [("message", "a")]),
        (b"data: a", []),
        (b"data: a\n", []),
        (b"data: a\ndata: b\r", []),
        (b"Data: a\n\n", []),
        (b" data: a\n\n", []),
        (b"data : a\n\n", []),
        (b"other: a\ndata: b\n\n", [("message", "b")]),
        (b"data: a\x00b\n\n", [("message", "a\x00b")]),
        ("data: a\u2028b\u0085c\x0bd\x0ce\x1cf\n\n".encode(), [("message", "a\u2028b\u0085c\x0bd\x0ce\x1cf")]),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
        (b"data::a\n\n", [("message", ":a")]),
    ],
)
def test_decoding(data: bytes, events: list[tuple[str, str]]) -> None:
    assert decoded(data) == events
    one_by_one = SseDecoder()
    assert [(e.name, e.data) for index in range(len(data)) for e in one_by_one.feed(data[index : index + 1])] == events


def test_ids() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"id: 1\ndata: a\n\n") == [SseEvent("message", "a", "1")]
    assert decoder.feed(b"data: b\n\n") == [SseEvent("message", "b", "1")]
    assert decoder.feed(b"id: 2\x00\ndata: c\n\n") == [SseEvent("message", "c", "1")]
    assert decoder.feed(b"id: 3\n\n") == []
    assert decoder.last_event_id == "3"
    assert decoder.feed(b"id\ndata: d\n\n") == [SseEvent("message", "d", "")]
    decoder.feed(b"id: 9\n")
    assert decoder.last_event_id == ""


def test_retry() -> None:
    decoder = SseDecoder()
    for value, expected in (
        (b"1000", 1000),
        (b"x", 1000),
        (b"10x", 1000),
        (b" 7", 1000),
        (b"", 1000),
        ("\u0663".encode(), 1000),
        (b"0", 0),
    ):
        decoder.feed(b"retry: " + value + b"\n")
        assert decoder.retry_ms == expected


NASTY = "\n\n\r data: event: done id: : ping [DONE] \u2028\u2029\u0085\x0b\x0c\x1c\x00 \U0001f468\u200d\U0001f469 <|im_end|>"


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=60), pieces=st.integers(1, 7))
@settings(max_examples=80, deadline=None)
def test_any_text_arrives_as_it_was(text: str, pieces: int) -> None:
    for shown in (text, NASTY + text):
        frame = encode_entry(LogEntry(3, 17, Delta(shown), token_ids=(1, 2)))
        decoder = SseDecoder()
        events = [event for start in range(0, len(frame), pieces) for event in decoder.feed(frame[start : start + pieces])]
        assert [(event.name, event.last_event_id, json.loads(event.data)) for event in events] == [("delta", "3-17", {"text": shown})]
        assert frame.count(b"\n") == 4


def test_the_shapes() -> None:
    done = Done("stop", 5, 3, 7, 1, 20, 300, None, "m", "m")
    assert decoded(encode_entry(LogEntry(1, 9, done))) == [
        (
            "done",
            (
                '{"finish_reason":"stop","prompt_tokens":5,"cached_tokens":3,"output_tokens":7,"queued_ms":1,"ttft_ms":20,'
                '"duration_ms":300,"cost":null,"model":"m","requested_model":"m"}'
            ),
        )
    ]
    assert decoded(encode_logged(Failed("engine_failed", "It broke.", True), None)) == [
        ("error", '{"code":"engine_failed","message":"It broke.","retryable":true,"retry_after_ms":null}')
    ]
    assert decoded(encode_logged(Snapshot("so far"), "1-4")) == [("snapshot", '{"text":"so far"}')]
    assert decoded(encode_logged(Sources((Source("t", "u"),)), "1-4")) == [("sources", '{"items":[{"title":"t","url":"u"}]}')]
    assert [name for name, _ in decoded(encode_logged(Meta("gen_1", None, None, None, "m", "m"), "1-1"))] == ["meta"]  # pyright: ignore[reportArgumentType]
    live = (Queued(2, 8000), PrefillProgress(1024, 4096), Downgraded("a", "b", "load"), Title("t"), Reconnect(500))
    assert [decoded(encode_live(event))[0] for event in live] == [
        ("status", '{"state":"queued","position":2,"eta_ms":8000}'),
        ("status", '{"state":"prefill","done":1024,"total":4096}'),
        ("status", '{"state":"downgraded","from":"a","to":"b","reason":"load"}'),
        ("title", '{"title":"t"}'),
        ("reconnect", '{"after_ms":500}'),
    ]
    assert decoded(RETRY + PING) == []
