"""Server-sent events from bytes, as the HTML standard reads them, but strict about what is broken."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from antiphon.client.errors import ProtocolError

MAX_EVENT_BYTES = 8 * 1024 * 1024
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event. ``id`` is the last id the stream set, also where this event set none."""

    kind: str
    data: str
    id: str


@dataclass(slots=True)
class SseParser:
    """Push bytes in pieces of any size; whole events come out. ``last_id`` and ``retry_ms`` are what the server last set."""

    last_id: str = ""
    retry_ms: int | None = None
    _decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8-sig")("strict"))
    _rest: str = ""
    _kind: str = ""
    _data: list[str] = field(default_factory=list[str])
    _data_bytes: int = 0

    def push(self, piece: bytes) -> Iterator[ServerEvent]:
        """Events completed by ``piece``. Raises ``ProtocolError`` for bytes that are not UTF-8 and for an endless event."""
        try:
            text = self._rest + self._decoder.decode(piece)
        except UnicodeDecodeError as error:
            raise ProtocolError("the event stream is not UTF-8") from error
        lines, self._rest = _split(text)
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event
        if len(self._rest) + self._data_bytes > MAX_EVENT_BYTES:
            raise ProtocolError("an event of the stream does not end")

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                self._data_bytes += len(value)
            case "event":
                self._kind = value
            case "id" if "\0" not in value:
                self.last_id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value)
            case _:
                pass
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._kind or "message", "\n".join(self._data), self.last_id) if self._data else None
        self._kind = ""
        self._data.clear()
        self._data_bytes = 0
        return event


def _split(text: str) -> tuple[list[str], str]:
    """Whole lines and what follows the last; a CR at the very end waits, for it may be half of a CRLF."""
    held = text.endswith("\r")
    *lines, rest = _LINE_END.split(text[:-1] if held else text)
    return lines, rest + "\r" if held else rest
