"""Group commit: all writes that wait share one transaction, so that one sync serves many of them.

The group runs without savepoints. When anything in it fails, all of it is rolled back and each write runs again, alone in a
transaction of its own: so a write is atomic by itself, and its outcome is what it would have been without the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

T = TypeVar("T")

GROUP_LIMIT = 64


class Transact(Protocol):
    def __call__(self, work: Callable[[sa.Connection], T], /, *, durable: bool) -> T:
        """Run ``work`` in one transaction; raises what it or the commit raises, with nothing kept."""
        ...


class _Write:
    """One function waiting for its turn, and its outcome."""

    __slots__ = ("durable", "fn", "future", "outcome")

    def __init__(self, fn: Callable[[sa.Connection], Any], *, durable: bool) -> None:
        self.fn = fn
        self.durable = durable
        self.future: Future[Any] = Future()
        self.outcome: Any = None


class WriteQueue:
    """Runs queued writes in order on ``thread``, an executor with one thread. A function may run twice; see the module's text."""

    def __init__(self, thread: ThreadPoolExecutor, transact: Transact, *, limit: int = GROUP_LIMIT) -> None:
        self._thread = thread
        self._transact = transact
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[_Write] = deque()
        self._scheduled = False

    def put(self, fn: Callable[[sa.Connection], T], *, durable: bool) -> Future[T]:
        """Queue ``fn``; a future cancelled before its group begins never runs. Raises ``RuntimeError`` once the thread is shut down."""
        write = _Write(fn, durable=durable)
        with self._lock:
            if not self._scheduled:
                self._thread.submit(self._run_all)
                self._scheduled = True
            self._waiting.append(write)
        return write.future

    def _run_all(self) -> None:
        while group := self._take():
            self._run([write for write in group if write.future.set_running_or_notify_cancel()])

    def _take(self) -> list[_Write]:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._limit))]
            self._scheduled = bool(group)
            return group

    def _run(self, group: Sequence[_Write]) -> None:
        if len(group) > 1 and self._together(group):
            for write in group:
                write.future.set_result(write.outcome)
            return
        for write in group:
            try:
                outcome = self._transact(write.fn, durable=write.durable)
            except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller who waits
                write.future.set_exception(error)
            else:
                write.future.set_result(outcome)

    def _together(self, group: Sequence[_Write]) -> bool:
        def all_of(tx: sa.Connection) -> None:
            for write in group:
                write.outcome = write.fn(tx)

        try:
            self._transact(all_of, durable=any(write.durable for write in group))
        except Exception:  # noqa: BLE001 - each write runs again and meets its own error
            return False
        return True
