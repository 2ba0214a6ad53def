"""What is told of a generation beside its log: its place in the queue, its prefill, its conversation's title. Never logged, never
replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from antiphon.core.events import Downgraded, PrefillProgress, Queued, Title


@dataclass(frozen=True, slots=True)
class LiveState:
    """The last thing there is to say."""

    event: Queued | PrefillProgress | Downgraded | Title


class LiveFeed:
    """One generation's live states. Of each sort it holds the last alone, so a slow reader costs nothing and misses no news.

    Open while a runner owns the generation (``end``); where it stands is told until its first text (``settle``).
    """

    def __init__(self) -> None:
        self.state: LiveState | None = None
        self._notice: LiveState | None = None
        self._title: LiveState | None = None
        self._version = 0
        self._settled = False
        self._ended = False
        self._changed = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether nothing more will be published."""
        return self._settled

    def announce(self, notice: Downgraded) -> None:
        """What every reader is told first, whenever it comes."""
        self._notice = LiveState(notice)
        self._notify()

    def publish(self, event: Queued | PrefillProgress) -> None:
        """Replace the state; ignored once settled."""
        if self._settled or (self.state is not None and self.state.event == event):
            return
        self.state = LiveState(event)
        self._notify()

    def entitle(self, title: str) -> None:
        """The conversation is called so from now on."""
        self._title = LiveState(Title(title))
        self._notify()

    def settle(self) -> None:
        """Text has begun or the generation is over: forget where it stands."""
        if not self._settled:
            self._settled, self.state = True, None
            self._notify()

    def end(self) -> None:
        """The generation is over here: the readers' iterations end."""
        self.settle()
        self._ended = True
        self._notify()

    async def states(self) -> AsyncIterator[LiveState | None]:
        """The states now, and each newer one; ``None`` once where it stands is no news any more. Ends with the feed."""
        seen, told, noticed = 0, None, None
        while True:
            if self._notice is not noticed:
                noticed = self._notice
                if noticed is not None:
                    yield noticed
            elif self._title is not told:
                told = self._title
                if told is not None:
                    yield told
            elif self.state is not None and seen != self._version:
                seen = self._version
                yield self.state
            elif self.state is None and seen:
                seen = 0
                yield None
            elif self._ended:
                return
            else:
                await self._changed.wait()

    def _notify(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
