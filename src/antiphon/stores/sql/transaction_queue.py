"""Calls that wait share a transaction: one sync serves many writes, one snapshot and one change of threads many reads.

The group runs without savepoints. When anything in it fails, all of it is rolled back and each call runs again, alone in a
transaction of its own: so a call is atomic by itself, and its outcome is what it would have been without the others.
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


class _Call:
    """One function waiting for its turn, and its outcome. ``future`` belongs to the loop's thread: others only look at it."""

    __slots__ = ("durable", "error", "fn", "future", "outcome")

    def __init__(self, fn: Callable[[sa.Connection], Any], future: asyncio.Future[Any], *, durable: bool) -> None:
        self.fn = fn
        self.durable = durable
        self.future = future
        self.outcome: Any = None
        self.error: BaseException | None = None


class TransactionQueue:
    """Runs queued calls, the longest waiting first, in groups, at most ``workers`` of them at once, on ``threads`` that has as many.

    With one worker all run in order. A function may run twice; see the module's text.
    """

    def __init__(self, threads: ThreadPoolExecutor, transact: Transact, *, workers: int = 1, limit: int = GROUP_LIMIT) -> None:
        self._threads = threads
        self._transact = transact
        self._workers = workers
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._working = 0

    def put(self, fn: Callable[[sa.Connection], T], *, durable: bool = False) -> asyncio.Future[T]:
        """Queue ``fn``; a future cancelled before its group begins never runs. Raises ``RuntimeError`` once the threads are shut down."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._working < self._workers:
                self._threads.submit(self._run_all)
                self._working += 1
            self._waiting.append(_Call(fn, future, durable=durable))
        return future

    def _run_all(self) -> None:
        while group := self._take():
            self._run([call for call in group if not call.future.cancelled()])

    def _take(self) -> list[_Call]:
        """A worker's share of what waits."""
        with self._lock:
            share = min(-(-len(self._waiting) // self._workers), self._limit)
            group = [self._waiting.popleft() for _ in range(share)]
            if not group:
                self._working -= 1
            return group

    def _run(self, group: Sequence[_Call]) -> None:
        if len(group) < 2 or not self._together(group):
            for call in group:
                try:
                    call.outcome = self._transact(call.fn, durable=call.durable)
                except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller who waits
                    call.error = error
        # One wake-up for all of a loop's calls: each costs a system call and a change of threads.
        for loop in {call.future.get_loop() for call in group}:
            with contextlib.suppress(RuntimeError):  # closed: nobody waits there any more
                loop.call_soon_threadsafe(_deliver, [call for call in group if call.future.get_loop() is loop])

    def _together(self, group: Sequence[_Call]) -> bool:
        def all_of(tx: sa.Connection) -> None:
            for call in group:
                call.outcome = call.fn(tx)

        try:
            self._transact(all_of, durable=any(call.durable for call in group))
        except Exception:  # noqa: BLE001 - each call runs again and meets its own error
            return False
        return True


def _deliver(group: Sequence[_Call]) -> None:
    for call in group:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.outcome)
        else:
            call.future.set_exception(call.error)
