"""Time in which this process could run: what a test measures a promise of seconds with, on a machine that may stand still for a while."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

_TICK_S = 0.01
_MOST_S = 0.05  # of a tick: a busy machine wakes a sleeper late, one that stands still does so by seconds


class _Awake(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="awake", daemon=True)
        self.seconds = 0.0

    def run(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(_TICK_S)
            self.seconds += min(time.monotonic() - began, _MOST_S)


_awake = _Awake()


def awake_s() -> float:
    """Seconds since the first call, less those in which the machine stood still or this process was stopped."""
    if not _awake.is_alive():
        _awake.start()
    return _awake.seconds


async def until(condition: Callable[[], object], *, within_s: float = 30.0, what: str = "it happens") -> float:
    """Awake seconds until ``condition`` holds; fails after ``within_s`` of them."""
    began = awake_s()
    while not condition():
        assert awake_s() - began < within_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.005)
    return awake_s() - began
