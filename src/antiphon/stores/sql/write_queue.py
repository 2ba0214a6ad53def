"""Group commit: all writes that wait share one transaction, so that one sync serves many of them.

The group runs without savepoints. When anything in it fails, all of it is rolled back and each write runs again, alone in a
transaction of its own: so a write is atomic by itself, and its outcome is what it would have been without the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

T = TypeVar("T")

GROUP_LIMIT = 64


class Transact(Protocol):
    def __call__(self, work: Callable[[sa.Connection], T], /, *, durable: bool) -> T:
        """Run ``work`` in one transaction; raises what it or the commit raises, with nothing kept."""
        ...


class _Write:
    """One function waiting for its turn, and its outcome. ``future`` belongs to the loop's thread: others only look at it."""

    __slots__ = ("durable", "error", "fn", "future", "outcome")

    def __init__(self, fn: Callable[[sa.Connection], Any], future: asyncio.Future[Any], *, durable: bool) -> None:
        self.fn = fn
        self.durable = durable
        self.future = future
        self.outcome: Any = None
        self.error: BaseException | None = None


class WriteQueue:
    """Runs queued writes in order on ``thread``, an executor with one thread. A function may run twice; see the module's text."""

    def __init__(self, thread: ThreadPoolExecutor, transact: Transact, *, limit: int = GROUP_LIMIT) -> None:
        self._thread = thread
        self._transact = transact
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[_Write] = deque()
        self._scheduled = False

    def put(self, fn: Callable[[sa.Connection], T], *, durable: bool) -> asyncio.Future[T]:
        """Queue ``fn``; a future cancelled before its group begins never runs. Raises ``RuntimeError`` once the thread is shut down."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._scheduled:
                self._thread.submit(self._run_all)
                self._scheduled = True
            self._waiting.append(_Write(fn, future, durable=durable))
        return future

    def _run_all(self) -> None:
        while group := self._take():
            self._run([write for write in group if not write.future.cancelled()])

    def _take(self) -> list[_Write]:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._limit))]
            self._scheduled = bool(group)
            return group

    def _run(self, group: Sequence[_Write]) -> None:
        if len(group) < 2 or not self._together(group):
            for write in group:
                try:
                    write.outcome = self._transact(write.fn, durable=write.durable)
                except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller who waits
                    write.error = error
        # One wake-up for all of a loop's writes: each costs a system call and a change of threads.
        for loop in {write.future.get_loop() for write in group}:
            with contextlib.suppress(RuntimeError):  # closed: nobody waits there any more
                loop.call_soon_threadsafe(_deliver, [write for write in group if write.future.get_loop() is loop])

    def _together(self, group: Sequence[_Write]) -> bool:
        def all_of(tx: sa.Connection) -> None:
            for write in group:
                write.outcome = write.fn(tx)

        try:
            self._transact(all_of, durable=any(write.durable for write in group))
        except Exception:  # noqa: BLE001 - each write runs again and meets its own error
            return False
        return True


def _deliver(group: Sequence[_Write]) -> None:
    for write in group:
        if write.future.done():
            continue
        if write.error is None:
            write.future.set_result(write.outcome)
        else:
            write.future.set_exception(write.error)
