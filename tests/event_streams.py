"""The corner cases of ``text/event-stream`` (WHATWG HTML and the web platform tests' eventsource/format-*), for every decoder.

``event_streams.json`` is read by the browser client's tests too: ``stream`` holds one byte per character, an event is
``[type, data, last event id, its own id or null]``, ``utf8`` tells whether a strict decoder accepts the bytes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class Case(msgspec.Struct, frozen=True):
    name: str
    stream: str
    events: tuple[tuple[str, str, str, str | None], ...]
    retry: int | None
    utf8: bool

    @property
    def data(self) -> bytes:
        return self.stream.encode("latin-1")


CASES = msgspec.json.decode((Path(__file__).parent / "event_streams.json").read_bytes(), type=list[Case])
