"""One tailer per generation per process: it reads the log once, encodes each event once, and wakes every reader.

Readers share a ring of the newest frames and each keeps only a cursor into it, so a slow reader costs no memory: one that
falls behind the ring gets a snapshot instead of what it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import takewhile

import structlog

from antiphon.core.events import Downgraded, Title
from antiphon.core.ids import GenerationId
from antiphon.edge.sse import encode_entry
from antiphon.orchestrator.live import LiveState
from antiphon.stores.log.base import GenerationLog

RING_FRAMES = 256

_FIRST_POLL_S = 0.01
_LAST_POLL_S = 0.25
_TELL_AGAIN_S = 1.0

BeReader = Callable[[GenerationId], AbstractAsyncContextManager[AsyncIterator[LiveState | None]]]
"""Be one of a generation's readers while the context is open, which yields its live states."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Frames:
    """Encoded events, the ``seq`` of the last of them, and whether that one is terminal."""

    data: bytes
    seq: int
    terminal: bool


@dataclass(frozen=True, slots=True)
class _Frame:
    seq: int
    data: bytes


class Reader:
    """A reader's wake-up. ``cursor``: it has everything up to and including that ``seq``."""

    __slots__ = ("_awake", "_sleeping", "cursor")

    def __init__(self) -> None:
        self.cursor = 0
        self._awake = False
        self._sleeping: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """There may be something to do."""
        self._awake = True
        sleeping = self._sleeping
        if sleeping is not None and not sleeping.done():
            sleeping.set_result(None)

    async def wait(self) -> None:
        """Sleep until woken; returns at once when that happened since the last ``wait``."""
        if not self._awake:
            # A bare future: an ``asyncio.Event`` per reader would weigh 0.8 kB more.
            self._sleeping = asyncio.get_running_loop().create_future()
            try:
                await self._sleeping
            finally:
                self._sleeping = None
        self._awake = False


class Tail:
    """The newest frames of one generation. ``gone``: the log is no more; ``missing``: it is not there (yet).

    For all its readers ``status`` is what the generation does before its first text, ``title`` its conversation's newest, and
    ``notice`` that a smaller model answers.
    """

    def __init__(self, log: GenerationLog, be_reader: BeReader, generation_id: GenerationId) -> None:
        self.gone = False
        self.missing = False
        self.failed = False
        self.readers: set[Reader] = set()
        self.status: LiveState | None = None
        self.title: LiveState | None = None
        self.notice: LiveState | None = None
        self.task: asyncio.Task[None] | None = None
        self.generation_id = generation_id
        self._source = log
        self._be_reader = be_reader
        self._ring: deque[_Frame] = deque(maxlen=RING_FRAMES)
        self._floor = 0
        self._seq = 0
        self._terminal_seq: int | None = None
        self._started = False
        # Readers of one generation mostly stand at the same place, so what one of them was given is kept for the next.
        self._newest: tuple[int, Frames] | None = None

    @property
    def started(self) -> bool:
        """Whether the log has been found and the ring says where it ends."""
        return self._started

    def after(self, cursor: int) -> Frames | None:
        """What follows ``cursor``, possibly nothing; ``None`` when that reaches back beyond the ring."""
        if cursor < self._floor:
            return None
        if self._newest is None or self._newest[0] != cursor:
            self._newest = (cursor, self._gather(cursor))
        return self._newest[1]

    def _gather(self, cursor: int) -> Frames:
        frames = list(takewhile(lambda frame: frame.seq > cursor, reversed(self._ring)))
        last = frames[0].seq if frames else cursor
        return Frames(b"".join(frame.data for frame in reversed(frames)), last, terminal=last == self._terminal_seq)

    async def run(self) -> None:
        """Follow the log to its end; cancelled when the last reader leaves."""
        try:
            async with self._be_reader(self.generation_id) as states:
                following = asyncio.create_task(self._follow_live(states), name="live-follower")
                following.add_done_callback(_retrieve)
                try:
                    await self._find()
                    await self._follow()
                finally:
                    following.cancel()
        except Exception:  # whatever it is, readers must learn of it: they would wait for a tail that is gone
            self.failed = True
            _log.exception("tail_failed", generation_id=self.generation_id)
            raise
        finally:
            self._wake()

    async def _find(self) -> None:
        pause, waited = _FIRST_POLL_S, 0.0
        while (state := await self._source.state(self.generation_id)) is None:
            if not self.missing or waited >= _TELL_AGAIN_S:
                waited, self.missing = 0.0, True
                self._wake()
            await asyncio.sleep(pause)
            waited += pause
            pause = min(pause * 2, _LAST_POLL_S)
        self.missing = False
        self._floor = self._seq = state.seq
        self._terminal_seq = None if state.terminal is None else state.terminal.seq
        self._started = True
        self._wake()

    async def _follow(self) -> None:
        while True:
            page = await self._source.read(self.generation_id, self._seq)
            if page is None:
                self.gone = True
                return
            for entry in page.entries:
                assert entry.seq > self._seq, "a log only grows"
                if len(self._ring) == RING_FRAMES:
                    self._floor = self._ring[0].seq
                self._ring.append(_Frame(entry.seq, encode_entry(entry)))
                self._seq = entry.seq
                if entry.terminal:
                    self._terminal_seq = entry.seq
            if page.entries:
                self._newest = None
                self._wake()
            else:
                await asyncio.sleep(0)  # woken for nothing, again and again, it must not keep the loop from everybody else
            if self._terminal_seq is not None:
                return
            await self._source.wait(self.generation_id, self._seq)

    async def _follow_live(self, states: AsyncIterator[LiveState | None]) -> None:
        async for state in states:
            if state is None:
                self.status = None
            elif isinstance(state.event, Title):
                self.title = state
            elif isinstance(state.event, Downgraded):
                self.notice = state
            else:
                self.status = state
            self._wake()

    def _wake(self) -> None:
        for reader in self.readers:
            reader.wake()


class Tails:
    """The tails of this process, alive for as long as somebody reads them."""

    def __init__(self, log: GenerationLog, be_reader: BeReader) -> None:
        self._source = log
        self._be_reader = be_reader
        self._running: dict[GenerationId, Tail] = {}

    def attach(self, generation_id: GenerationId, reader: Reader) -> Tail:
        """The generation's tail, which wakes ``reader`` until it is detached."""
        tail = self._running.get(generation_id)
        if tail is None or tail.failed or tail.gone:
            tail = self._running[generation_id] = Tail(self._source, self._be_reader, generation_id)
            tail.task = asyncio.create_task(tail.run(), name=f"tail-{generation_id}")
            tail.task.add_done_callback(_retrieve)
        tail.readers.add(reader)
        return tail

    def detach(self, tail: Tail, reader: Reader) -> None:
        """``reader`` reads no more; without readers a tail ends."""
        tail.readers.discard(reader)
        if tail.readers:
            return
        if tail.task is not None:
            tail.task.cancel()
        if self._running.get(tail.generation_id) is tail:
            del self._running[tail.generation_id]

    @property
    def running(self) -> int:
        """Generations that somebody reads here."""
        return len(self._running)

    def wake_all(self) -> None:
        """Wake every reader of every generation, for drain."""
        for tail in self._running.values():
            for reader in tail.readers:
                reader.wake()


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
