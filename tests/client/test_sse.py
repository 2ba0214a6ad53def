"""The parser of server-sent events: the standard's rules, any split of the bytes, and broken streams refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.errors import ProtocolError
from antiphon.client.sse import MAX_EVENT_BYTES, ServerEvent, SseParser
from tests.event_streams import CASES, Case

STREAM = (
    'retry: 2000\n\n: ping\n\nid: 1-1\nevent: meta\ndata: {"a":1}\n\n'
    "id: 1-2\r\nevent: delta\r\ndata: eins\r\ndata: zwei\u2028 🙂\r\n\r\n"
    "event:status\rdata:  kept blank\r\r"
    "id\ndata\n\nevent: empty\n\ndata: not dispatched"
)
EVENTS = [
    ServerEvent("meta", '{"a":1}', "1-1"),
    ServerEvent("delta", "eins\nzwei\u2028 🙂", "1-2"),
    ServerEvent("status", " kept blank", "1-2"),
    ServerEvent("message", "", ""),
]


def parse(pieces: list[bytes]) -> list[ServerEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.push(piece)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=12))
def test_any_split_gives_the_same_events(cuts: list[int]) -> None:
    whole = STREAM.encode()
    places = [0, *sorted(cuts), len(whole)]
    assert parse([whole[start:end] for start, end in pairwise(places)]) == EVENTS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_standards_corner_cases(case: Case) -> None:
    expected = [ServerEvent(kind, data, last_id) for kind, data, last_id, _ in case.events]
    for pieces in ([case.data], [bytes([byte]) for byte in case.data]):
        parser = SseParser()
        if not case.utf8:
            with pytest.raises(ProtocolError):
                [list(parser.push(piece)) for piece in pieces]
            continue
        assert [event for piece in pieces for event in parser.push(piece)] == expected
        assert parser.retry_ms == case.retry


@pytest.mark.parametrize("broken", [b"data: \xff\n\n", b"data: \xed\xa0\x80\n\n"])
def test_bytes_that_are_not_utf8_are_refused(broken: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse([broken])


def test_an_endless_event_is_refused() -> None:
    line = b"data: " + b"x" * 65_530 + b"\n"
    with pytest.raises(ProtocolError):
        parse([line] * (MAX_EVENT_BYTES // 65_530 + 1))
