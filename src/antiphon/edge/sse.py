"""Server-sent events: our encoder, and a decoder that follows the WHATWG algorithm to the letter.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

import msgspec

from antiphon.core.events import (
    Delta,
    Done,
    Downgraded,
    Failed,
    LiveEvent,
    LogEntry,
    LogEvent,
    Meta,
    PrefillProgress,
    Queued,
    Reasoning,
    Reconnect,
    Retract,
    Snapshot,
    Sources,
    Title,
    cursor_text,
)

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
RETRY = b"retry: 2000\n\n"
PING = b": ping\n\n"

_NAMES: dict[type[LogEvent], bytes] = {
    Meta: b"meta",
    Delta: b"delta",
    Reasoning: b"reasoning",
    Sources: b"sources",
    Snapshot: b"snapshot",
    Retract: b"retract",
    Done: b"done",
    Failed: b"error",
}


def encode_entry(entry: LogEntry) -> bytes:
    """One log entry as it goes over the wire; its token ids stay inside."""
    return encode_logged(entry.event, cursor_text(entry))


def encode_logged(event: LogEvent, event_id: str | None) -> bytes:
    """A logged kind of event; without an id the reader keeps the one it has.

    JSON escapes CR and LF, so the data is one line whatever a model wrote.
    """
    head = b"" if event_id is None else b"id: " + event_id.encode("ascii") + b"\n"
    return head + b"event: " + _NAMES[type(event)] + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def encode_live(event: LiveEvent) -> bytes:
    """An event that is never logged and so has no id."""
    match event:
        case Queued():
            state = "starting" if event.starting else "queued"
            return _frame(b"status", {"state": state, "position": event.position, "eta_ms": event.eta_ms})
        case PrefillProgress():
            return _frame(b"status", {"state": "prefill", "done": event.done, "total": event.total})
        case Downgraded():
            status = {"state": "downgraded", "from": event.from_model, "to": event.to_model, "reason": event.reason}
            return _frame(b"status", status)
        case Title():
            return _frame(b"title", {"title": event.title})
        case Reconnect():
            return _frame(b"reconnect", {"after_ms": event.after_ms})


def _frame(name: bytes, data: dict[str, str | int] | dict[str, str | int | None] | dict[str, str]) -> bytes:
    return b"event: " + name + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """A dispatched event. ``last_event_id`` is the reader's cursor after it."""

    name: str
    data: str
    last_event_id: str


class SseDecoder:
    """Feed it bytes in any pieces; it returns the events they complete.

    Lines end at CR, LF or CRLF and nowhere else. ``retry_ms`` and ``last_event_id`` are the reader's state. An event that is
    not ended by an empty line is never dispatched.
    """

    def __init__(self) -> None:
        self.last_event_id = ""
        self.retry_ms: int | None = None
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True
        self._after_cr = False
        self._line: list[str] = []
        self._name = ""
        self._data: list[str] = []
        self._pending_id = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events completed by ``chunk``, in order."""
        text = self._text.decode(chunk)
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        events: list[SseEvent] = []
        for line in self._lines(text):
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _lines(self, text: str) -> list[str]:
        if self._after_cr and text:
            self._after_cr = False
            text = text.removeprefix("\n")
        if text.endswith("\r"):
            self._after_cr = True
        *complete, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if complete:
            complete[0] = "".join((*self._line, complete[0]))
            self._line.clear()
        if rest:
            self._line.append(rest)
        return complete

    def _take(self, line: str) -> SseEvent | None:
        if not line:
            return self._dispatch()
        field, colon, value = line.partition(":")
        if colon and not field:
            return None
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._pending_id = value
        elif field == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> SseEvent | None:
        self.last_event_id = self._pending_id
        name, data = self._name, self._data
        self._name, self._data = "", []
        if not data:
            return None
        return SseEvent(name=name or "message", data="\n".join(data), last_event_id=self.last_event_id)
