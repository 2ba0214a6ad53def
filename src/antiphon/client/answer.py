"""One answer as it is written: an iterator of events that survives lost connections."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

from antiphon.client.errors import ApiError, ConnectionLost, ProtocolError
from antiphon.client.shapes import Delta, Done, Event, Failed, Generation, Meta, Reconnect, Retract, Snapshot, Status, read_event
from antiphon.client.sse import ServerEvent, SseParser
from antiphon.client.transport import Transport

FIRST_WAIT_S = 0.4
LONGEST_WAIT_S = 5.0
PATIENCE_S = 60.0
"""How long in sum to wait between two events before a lost connection is reported."""
OPENING_PATIENCE_S = 1.0
"""The same before the first event: a server that is not there is reported soon."""

_LEAST_COUNTED_S = 0.1
_GAPS_AT_ONCE = 3
_PASSING = frozenset({408, 429, 502, 503, 504})
_NOWHERE = "999999999999"
_STREAM = {"Accept": "text/event-stream"}
_PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Opening:
    """The request that asks for the answer. Its idempotency key makes it safe to repeat."""

    path: str
    body: Mapping[str, object]
    idempotency_key: str


class _Place(Enum):
    NEXT = "next"
    KNOWN = "known"
    GAP = "gap"


class Answer:
    """Iterate over it for events, the last a ``Done`` or ``Failed``. ``text`` is what a reader would see now.

    A connection lost in between is made again from the last event read, so no text is lost or repeated. The waits double and are
    drawn at random between a quarter and the whole, so that the readers of a server that went away do not return as one.
    ``sleep`` takes seconds; ``random`` gives a share in [0, 1).
    """

    def __init__(
        self,
        transport: Transport,
        opening: Opening,
        *,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.text = ""
        self.generation_id = ""
        self._transport = transport
        self._opening = opening
        self._sleep = sleep
        self._random = random
        self._asked_s: float | None = None
        self._gaps = 0
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
                if error.status not in _PASSING or not self.generation_id:
                    raise
                lost = ConnectionLost(error.detail)
                self._asked_s = None if error.retry_after_ms is None else error.retry_after_ms / 1000
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
                        self._asked_s = event.after_ms / 1000
                        return
                    place = _Place.KNOWN if event is None else self._take(event, received)
                    if place is _Place.GAP:
                        return self._gap()
                    if event is not None and place is _Place.NEXT:
                        yield event
                    if self._ended:
                        return

    def _ask(self) -> AbstractContextManager[http.client.HTTPResponse]:
        if self.generation_id:
            cursor = self._last_id if self._gaps <= 1 else _NOWHERE
            headers = {**_STREAM, "Last-Event-ID": cursor} if cursor else _STREAM
            return self._transport.exchange("GET", f"/v1/generations/{self.generation_id}/stream", headers=headers)
        headers = {**_STREAM, "Idempotency-Key": self._opening.idempotency_key}
        return self._transport.exchange("POST", self._opening.path, self._opening.body, headers)

    def _take(self, event: Event, received: ServerEvent) -> _Place:
        """Account for ``event`` where it is the next. One without an id of its own has the last one's: so the store's end comes."""
        if isinstance(event, Status):
            return _Place.NEXT
        seq, last = _seq(received.id), _seq(self._last_id)
        if not isinstance(event, Snapshot):
            if seq > last + 1:
                return _Place.GAP
            if seq <= last and not isinstance(event, Done | Failed):
                return _Place.KNOWN
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
        self._waited_s, self._wait_s, self._gaps = 0.0, FIRST_WAIT_S, 0
        return _Place.NEXT

    def _gap(self) -> None:
        """Replay from the cursor, at once; where that does not close the gap, ``_ask`` names a place that gets a snapshot."""
        self._gaps += 1
        self._asked_s = 0.0 if self._gaps <= _GAPS_AT_ONCE else None

    def _pause(self, lost: ConnectionLost) -> None:
        if self._waited_s >= (PATIENCE_S if self.generation_id else OPENING_PATIENCE_S):
            raise lost
        asked_s, self._asked_s = self._asked_s, None
        wait_s = self._wait_s * (0.25 + 0.75 * self._random()) if asked_s is None else min(max(asked_s, 0.0), LONGEST_WAIT_S)
        self._sleep(wait_s)
        self._waited_s += max(wait_s, _LEAST_COUNTED_S)
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)


def _seq(event_id: str) -> int:
    """The dense number in ``<epoch>-<seq>``; 0 before the first event. Raises ``ProtocolError``."""
    if not event_id:
        return 0
    _, _, seq = event_id.rpartition("-")
    if not (seq.isascii() and seq.isdigit()):
        raise ProtocolError(f"{event_id!r} is not an event id")
    return int(seq)
