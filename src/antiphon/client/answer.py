"""One answer as it is written: an iterator of events that survives lost connections."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable, Iterator

from antiphon.client import calls
from antiphon.client.cursor import AnswerCursor, Opening, Place
from antiphon.client.errors import ApiError, ConnectionLost, ProtocolError
from antiphon.client.shapes import Done, Event, Failed, Generation, Meta, Reconnect, read_event
from antiphon.client.sse import SseParser
from antiphon.client.transport import Transport

__all__ = ["Answer", "Opening"]

_PIECE_BYTES = 65_536


class Answer:
    """Iterate over it for events, the last a ``Done`` or ``Failed``. ``text`` is what a reader would see now.

    A connection lost in between is made again from the last event read, so no text is lost or repeated.
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
        self._transport = transport
        self._sleep = sleep
        self._cursor = AnswerCursor(opening, random)

    @property
    def text(self) -> str:
        return self._cursor.text

    @property
    def generation_id(self) -> str:
        """Empty before the first event."""
        return self._cursor.generation_id

    @property
    def meta(self) -> Meta | None:
        return self._cursor.meta

    @property
    def end(self) -> Done | Failed | None:
        return self._cursor.end

    def __iter__(self) -> Iterator[Event]:
        """Raises ``ApiError``, ``ConnectionLost``, ``ProtocolError``."""
        while self._cursor.end is None:
            try:
                yield from self._connected()
                lost = ConnectionLost("the server closed the stream")
            except ConnectionLost as error:
                lost = error
            except ApiError as error:
                lost = self._cursor.refused(error)
            if self._cursor.end is None:
                self._sleep(self._cursor.wait_s(lost))

    def cancel(self) -> Generation:
        """Stop the answer where this reader stands; the text up to here is kept. Raises as iterating does."""
        if not self.generation_id:
            raise ConnectionLost("the answer has not begun")
        return self._transport.call(calls.cancel(self.generation_id, self._cursor.last_id))

    def _connected(self) -> Iterator[Event]:
        """Events of one connection; returns at its end."""
        cursor, asking = self._cursor, self._cursor.asking()
        parser = SseParser(last_id=cursor.last_id)
        with self._transport.exchange(asking.method, asking.path, asking.body, asking.headers) as response:
            if response.status == http.client.NO_CONTENT:
                raise ProtocolError("the stream ended without done or error")
            while piece := response.read1(_PIECE_BYTES):
                for received in parser.push(piece):
                    event = read_event(received.kind, received.data)
                    if isinstance(event, Reconnect):
                        return cursor.come_back_after(event.after_ms / 1000)
                    place = Place.KNOWN if event is None else cursor.take(event, received)
                    if place is Place.GAP:
                        return cursor.gap()
                    if event is not None and place is Place.NEXT:
                        yield event
                    if cursor.end is not None:
                        return None
        return None
