"""One timer for any number of streams: each is visited once per turn, and the visits of a turn are spread over it."""

from __future__ import annotations

import asyncio
from typing import Protocol

SPOKES = 128


class Rider(Protocol):
    def tick(self) -> None:
        """A turn has passed. Must not block nor raise."""
        ...


class Wheel:
    """Turns in ``turn_s`` seconds for as long as anybody rides; belongs to the event loop of its first rider."""

    def __init__(self, turn_s: float, spokes: int = SPOKES) -> None:
        self._pause_s = turn_s / spokes
        self._spokes: list[dict[Rider, None]] = [{} for _ in range(spokes)]
        self._at = 0
        self._riders = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, rider: Rider) -> int:
        """Visit ``rider`` once per turn, for the first time when one turn has passed; returns its place, for ``remove``."""
        # The spoke that was visited last comes last; those who come at once get different ones.
        place = (self._at - 1 - self._riders) % len(self._spokes)
        self._spokes[place][rider] = None
        self._riders += 1
        if self._timer is None:
            self._arm()
        return place

    def remove(self, rider: Rider, place: int) -> None:
        """Visit it no more."""
        del self._spokes[place][rider]
        self._riders -= 1

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._turn)

    def _turn(self) -> None:
        self._timer = None
        for rider in tuple(self._spokes[self._at]):
            rider.tick()
        self._at = (self._at + 1) % len(self._spokes)
        if self._riders:
            self._arm()
