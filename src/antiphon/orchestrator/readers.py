"""Who reads a generation in this process, whether or not anybody runs it here.

A stop keeps what readers were given (see ``Readership.cutting``), and an abandoned generation is known by its readers' absence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from antiphon.core.clock import Clock
from antiphon.core.ids import GenerationId

_CUT_WAIT_S = 1.0


def _nothing_sent() -> int:
    return 0


class Readership:
    """The readers of one generation. ``delivered_seq``: everything up to it may be on somebody's screen.

    While somebody reads, everything that is in the log is delivered or under way; ``newest_seq`` (set by the writer) says how
    far that reaches when the last reader leaves. ``absent_since`` is the monotonic time since which nobody reads.
    """

    def __init__(self, clock: Clock) -> None:
        self.readers = 0
        self.came = False
        self.absent_since = clock.monotonic()
        self.delivered_seq = 0
        self.newest_seq: Callable[[], int] = _nothing_sent
        self._clock = clock
        self._changed = asyncio.Event()
        self._cut_over: asyncio.Event | None = None

    def delivered(self, seq: int) -> None:
        """Somebody was given the text up to ``seq`` otherwise than by a stream."""
        self.delivered_seq = max(self.delivered_seq, seq)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count one more reader."""
        self.readers += 1
        self.came = True
        self._notify()
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers:
                self.absent_since = self._clock.monotonic()
                self.delivered(self.newest_seq())
            self._notify()

    @contextmanager
    def cutting(self) -> Iterator[int | None]:
        """The ``seq`` behind which nothing was delivered; ``None``: nothing may be taken back, since somebody reads.

        New readers wait until the context ends, so that none of them is given what is about to go.
        """
        if self.readers:
            yield None
            return
        over = self._cut_over = asyncio.Event()
        try:
            yield self.delivered_seq
        finally:
            self._cut_over = None
            over.set()

    async def uncut(self) -> None:
        """Wait for a cut under way, a second at most."""
        if self._cut_over is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CUT_WAIT_S):
                    await self._cut_over.wait()

    async def change(self) -> None:
        """Wait until somebody comes or goes."""
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Readers:
    """The readerships of this process; one is kept for as long as somebody reads or runs its generation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[GenerationId, tuple[Readership, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, generation_id: GenerationId) -> Readership | None:
        held = self._held.get(generation_id)
        return None if held is None else held[0]

    @contextmanager
    def holding(self, generation_id: GenerationId) -> Iterator[Readership]:
        """The generation's readership, kept while the context is open."""
        readership, holders = self._held.get(generation_id) or (Readership(self._clock), 0)
        self._held[generation_id] = (readership, holders + 1)
        try:
            yield readership
        finally:
            _, holders = self._held[generation_id]
            if holders > 1:
                self._held[generation_id] = (readership, holders - 1)
            else:
                del self._held[generation_id]

    @asynccontextmanager
    async def reading(self, generation_id: GenerationId) -> AsyncIterator[None]:
        """Count one reader of the generation while the context is open; to be entered before anything of its log is read."""
        with self.holding(generation_id) as readership:
            await readership.uncut()
            with readership.reading():
                yield
