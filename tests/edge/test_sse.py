"""The encoder, and the decoder against the standard's corner cases."""

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
from tests.event_streams import CASES, Case


def decoded(data: bytes) -> list[tuple[str, str]]:
    return [(event.name, event.data) for event in SseDecoder().feed(data)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decoding(case: Case) -> None:
    expected = [SseEvent(name, data, last_id) for name, data, last_id, _ in case.events]
    at_once, one_by_one = SseDecoder(), SseDecoder()
    assert at_once.feed(case.data) == expected
    assert [event for byte in case.data for event in one_by_one.feed(bytes([byte]))] == expected
    assert at_once.retry_ms == one_by_one.retry_ms == case.retry


def test_the_last_id_is_set_with_the_empty_line() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"id: 3\n\n") == []
    assert decoder.last_event_id == "3"
    decoder.feed(b"id: 9\n")
    assert decoder.last_event_id == "3"


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
