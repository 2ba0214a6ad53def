"""One answer as it is written: an iterator of events that survives lost connections."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from antiphon.client.errors import ApiError, ConnectionLost, ProtocolError
from antiphon.client.shapes import Delta, Done, Event, Failed, Generation, Meta, Reconnect, Retract, Snapshot, Status, read_event
from antiphon.client.sse import ServerEvent, SseParser
from antiphon.client.transport import Transport

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
PATIENCE_S = 60.0
"""How long in sum to wait between two events before a lost connection is reported."""
OPENING_PATIENCE_S = 1.0
"""The same before the first event: a server that is not there is reported soon."""

_STREAM = {"Accept": "text/event-stream"}
_PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Opening:
    """The request that asks for the answer. Its idempotency key makes it safe to repeat."""

    path: str
    body: Mapping[str, object]
    idempotency_key: str


class Answer:
    """Iterate over it for events, the last a ``Done`` or ``Failed``. ``text`` is what a reader would see now.

    A connection lost in between is made again, after a growing wait, from the last event read: no text is lost or repeated.
    """

    def __init__(self, transport: Transport, opening: Opening, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.text = ""
        self.generation_id = ""
        self._transport = transport
        self._opening = opening
        self._sleep = sleep
        self._parser = SseParser()
        self._last_id = ""
        self._waited_s = 0.0
        self._wait_s = FIRST_WAIT_S
        self._ended = False

    def __iter__(self) -> Iterator[Event]:
        """Raises ``ApiError``, ``ConnectionLost``, ``ProtocolError``."""
        while not self._ended:
            try:
                yield from self._connected()
                lost = ConnectionLost("the server closed the stream")
            except ConnectionLost as error:
                lost = error
            except ApiError as error:
                if error.status != 503 or not self.generation_id:
                    raise
                lost = ConnectionLost(error.detail)
            if not self._ended:
                self._pause(lost)

    def cancel(self) -> Generation:
        """Stop the answer where this reader stands; the text up to here is kept. Raises as iterating does."""
        if not self.generation_id:
            raise ConnectionLost("the answer has not begun")
        body = {"seen_id": self._last_id} if self._last_id else {}
        return self._transport.call("POST", f"/v1/generations/{self.generation_id}/cancel", Generation, body)

    def _connected(self) -> Iterator[Event]:
        """Events of one connection; returns at its end."""
        self._parser = SseParser(last_id=self._last_id)
        with self._ask() as response:
            if response.status == http.client.NO_CONTENT:
                raise ProtocolError("the stream ended without done or error")
            while piece := response.read1(_PIECE_BYTES):
                for received in self._parser.push(piece):
                    event = read_event(received.kind, received.data)
                    if isinstance(event, Reconnect):
                        self._wait_s = event.after_ms / 1000
                        return
                    if event is not None and self._take(event, received):
                        yield event
                    if self._ended:
                        return

    def _ask(self) -> AbstractContextManager[http.client.HTTPResponse]:
        if self.generation_id:
            headers = {**_STREAM, "Last-Event-ID": self._last_id} if self._last_id else _STREAM
            return self._transport.exchange("GET", f"/v1/generations/{self.generation_id}/stream", headers=headers)
        headers = {**_STREAM, "Idempotency-Key": self._opening.idempotency_key}
        return self._transport.exchange("POST", self._opening.path, self._opening.body, headers)

    def _take(self, event: Event, received: ServerEvent) -> bool:
        """Account for ``event``; false when it was read before."""
        if isinstance(event, Status):
            return True
        if _seq(received.id) <= _seq(self._last_id) and not isinstance(event, Snapshot):
            return False
        self._last_id = received.id
        match event:
            case Meta():
                self.generation_id = event.generation_id
            case Delta():
                self.text += event.text
            case Snapshot() | Retract():
                self.text = event.text
            case Done() | Failed():
                self._ended = True
        self._waited_s = 0.0
        self._wait_s = FIRST_WAIT_S
        return True

    def _pause(self, lost: ConnectionLost) -> None:
        if self._waited_s >= (PATIENCE_S if self.generation_id else OPENING_PATIENCE_S):
            raise lost
        wait_s = min(max(self._wait_s, 0.0), LONGEST_WAIT_S)
        self._sleep(wait_s)
        self._waited_s += max(wait_s, FIRST_WAIT_S)
        self._wait_s = max(wait_s * 2, FIRST_WAIT_S)


def _seq(event_id: str) -> int:
    """The dense number in ``<epoch>-<seq>``; 0 before the first event. Raises ``ProtocolError``."""
    if not event_id:
        return 0
    _, _, seq = event_id.rpartition("-")
    if not (seq.isascii() and seq.isdigit()):
        raise ProtocolError(f"{event_id!r} is not an event id")
    return int(seq)
