"""Where a reader of one answer stands, without any I/O: what is next, what is known, what is missing, how long to wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from antiphon.client.errors import ApiError, ConnectionLost, ProtocolError
from antiphon.client.shapes import Delta, Done, Event, Failed, Meta, Retract, Snapshot, Status
from antiphon.client.sse import ServerEvent

FIRST_WAIT_S = 0.4
RESTART_WAIT_S = 0.5
RESTART_S = 8.0
"""A server that restarts is back within so many seconds: until then no wait is longer than ``RESTART_WAIT_S``."""
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


@dataclass(frozen=True, slots=True)
class Opening:
    """The request that asks for the answer. Its idempotency key makes it safe to repeat."""

    path: str
    body: Mapping[str, object]
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Asking:
    """One request for the stream."""

    method: str
    path: str
    body: Mapping[str, object] | None
    headers: Mapping[str, str]


class Place(Enum):
    NEXT = "next"
    KNOWN = "known"
    GAP = "gap"


class AnswerCursor:
    """One answer as far as it was read. ``random`` gives a share in [0, 1).

    The waits double and are drawn at random between a quarter and the whole, so that the readers of a server that went away do not
    return as one.
    """

    def __init__(self, opening: Opening, random: Callable[[], float]) -> None:
        self.text = ""
        self.meta: Meta | None = None
        self.end: Done | Failed | None = None
        self.last_id = ""
        self._opening = opening
        self._random = random
        self._asked_s: float | None = None
        self._gaps = 0
        self._waited_s = 0.0
        self._wait_s = FIRST_WAIT_S

    @property
    def generation_id(self) -> str:
        return self.meta.generation_id if self.meta else ""

    def asking(self) -> Asking:
        """What to ask for now: the answer, or what follows the last event read."""
        if not self.meta:
            headers = {**_STREAM, "Idempotency-Key": self._opening.idempotency_key}
            return Asking("POST", self._opening.path, self._opening.body, headers)
        at = self.last_id if self._gaps <= 1 else _NOWHERE
        headers = {**_STREAM, "Last-Event-ID": at} if at else _STREAM
        return Asking("GET", f"/v1/generations/{self.generation_id}/stream", None, headers)

    def take(self, event: Event, received: ServerEvent) -> Place:
        """Account for ``event`` where it is the next. One without an id of its own has the last one's: so the store's end comes.

        Raises ``ProtocolError`` for an id that cannot be read.
        """
        if isinstance(event, Status):
            return Place.NEXT
        seq, last = _seq(received.id), _seq(self.last_id)
        if not isinstance(event, Snapshot):
            if seq > last + 1:
                return Place.GAP
            if seq <= last and not isinstance(event, Done | Failed):
                return Place.KNOWN
        self.last_id = received.id
        match event:
            case Meta():
                self.meta = event
            case Delta():
                self.text += event.text
            case Snapshot() | Retract():
                self.text = event.text
            case Done() | Failed():
                self.end = event
        self._waited_s, self._wait_s, self._gaps = 0.0, FIRST_WAIT_S, 0
        return Place.NEXT

    def gap(self) -> None:
        """Replay from the cursor, at once; where that does not close the gap, ``asking`` names a place that gets a snapshot."""
        self._gaps += 1
        self._asked_s = 0.0 if self._gaps <= _GAPS_AT_ONCE else None

    def come_back_after(self, seconds: float | None) -> None:
        """The server has said when; ``None``: it has not."""
        self._asked_s = seconds

    def refused(self, error: ApiError) -> ConnectionLost:
        """A refusal that may pass is a lost connection; raises ``error`` where it may not, or before the answer has begun."""
        if error.status not in _PASSING or not self.meta:
            raise error
        self._asked_s = None if error.retry_after_ms is None else error.retry_after_ms / 1000
        return ConnectionLost(error.detail)

    def wait_s(self, lost: ConnectionLost) -> float:
        """Seconds to wait before asking again. Raises ``lost`` when enough was waited."""
        if self._waited_s >= (PATIENCE_S if self.meta else OPENING_PATIENCE_S):
            raise lost
        asked_s, self._asked_s = self._asked_s, None
        wait_s = self._wait_s * (0.25 + 0.75 * self._random()) if asked_s is None else min(max(asked_s, 0.0), LONGEST_WAIT_S)
        self._waited_s += max(wait_s, _LEAST_COUNTED_S)
        self._wait_s = min(self._wait_s * 2, RESTART_WAIT_S if self._waited_s < RESTART_S else LONGEST_WAIT_S)
        return wait_s


def _seq(event_id: str) -> int:
    """The dense number in ``<epoch>-<seq>``; 0 before the first event. Raises ``ProtocolError``."""
    if not event_id:
        return 0
    _, _, seq = event_id.rpartition("-")
    if not (seq.isascii() and seq.isdigit()):
        raise ProtocolError(f"{event_id!r} is not an event id")
    return int(seq)
