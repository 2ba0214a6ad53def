"""What a generation does before its first word: its place in the queue, its prefill. Never logged, never replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from antiphon.core.events import Downgraded, PrefillProgress, Queued


@dataclass(frozen=True, slots=True)
class LiveState:
    """The last thing there is to say."""

    event: Queued | PrefillProgress | Downgraded


class LiveFeed:
    """One generation's live state. It holds the last value only, so a slow reader costs nothing and misses no news.

    Open from the moment a runner owns the generation until its first text (``settle``).
    """

    def __init__(self) -> None:
        self.state: LiveState | None = None
        self._notice: LiveState | None = None
        self._version = 0
        self._settled = False
        self._changed = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether nothing more will be published."""
        return self._settled

    def announce(self, notice: Downgraded) -> None:
        """What every reader is told first, whenever it comes, until text begins."""
        self._notice = LiveState(notice)

    def publish(self, event: Queued | PrefillProgress) -> None:
        """Replace the state; ignored once settled."""
        if self._settled or (self.state is not None and self.state.event == event):
            return
        self.state = LiveState(event)
        self._notify()

    def settle(self) -> None:
        """Text has begun or the generation is over: forget the state and end the readers' iterations."""
        if not self._settled:
            self._settled, self.state = True, None
            self._notify()

    async def states(self) -> AsyncIterator[LiveState]:
        """The state now, if there is one, and each newer one; ends when the feed settles."""
        seen = 0
        if self._notice is not None and not self._settled:
            yield self._notice
        while True:
            if self.state is not None and seen != self._version:
                seen = self._version
                yield self.state
            elif self._settled:
                return
            else:
                await self._changed.wait()

    def _notify(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
