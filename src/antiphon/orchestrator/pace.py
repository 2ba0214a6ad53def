"""When to write and when to try again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import AntiphonError, DiskFull, StoreUnavailable

log = structlog.get_logger(__name__)
_T = TypeVar("_T")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_ATTEMPTS = 6


class Grid:
    """Wakes all its waiters at the same instants, ``period_s`` apart, so that what they write can share one write."""

    def __init__(self, clock: Clock, period_s: float) -> None:
        self._clock = clock
        self._period_s = period_s
        self._next: asyncio.Event | None = None

    async def tick(self) -> None:
        """Wait for the next instant of the grid."""
        if self._next is None:
            self._next = asyncio.Event()
            pause = self._period_s - self._clock.monotonic() % self._period_s if self._period_s > 0 else 0.0
            asyncio.get_running_loop().call_later(pause, self._wake)
        await self._next.wait()

    def _wake(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None


def is_outage(error: Exception) -> bool:
    """Whether waiting may help: the store or the disk is away, and nothing about the call itself is wrong."""
    return isinstance(error, StoreUnavailable | DiskFull | OSError)


async def persist(act: Callable[[], Awaitable[_T]], *, what: str, forever: bool = False, whatever: bool = False) -> _T:
    """Run ``act`` until it succeeds, pausing 50 ms to 5 s between attempts; the log is told once of each kind of failure.

    Gives up after six attempts (about 1.5 s) and raises the last error; ``forever`` keeps trying through an outage, with
    ``whatever`` through any fault. Other errors of ours (``StaleEpoch``, ``NotFound``) are answers, not faults, and are raised
    at once. ``act`` must be safe to repeat when an attempt succeeded and its answer was lost.
    """
    pause = _FIRST_PAUSE_S
    attempt = 0
    told: set[type[Exception]] = set()
    while True:
        attempt += 1
        try:
            return await act()
        except Exception as error:
            outage = is_outage(error)
            if isinstance(error, AntiphonError) and not outage:
                raise
            if attempt >= _ATTEMPTS and not (forever and (outage or whatever)):
                raise
            if type(error) not in told:
                told.add(type(error))
                log.warning("write_failed", what=what, attempt=attempt, error=type(error).__name__, exc_info=not outage)
        await asyncio.sleep(pause)
        pause = min(_LONGEST_PAUSE_S, pause * 2)
