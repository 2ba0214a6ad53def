"""An event loop in which nothing is left to chance but one seed: the order of what is ready, the time, what threads do."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

from antiphon.core.clock import truncate_to_ms

T = TypeVar("T")
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(eq=False)
class Process:
    """What dies together. Once ``dead``, nothing that was begun in it goes on: no callback, no ``finally``."""

    name: str
    dead: bool = False
    paused_until: float = 0.0
    died: asyncio.Event = field(default_factory=asyncio.Event)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin ``work`` inside this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work`` inside this process. Raises ``ConnectionResetError`` when it dies first."""
        task, death = self.spawn(work), asyncio.ensure_future(self.died.wait())
        try:
            await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ConnectionResetError(self.name)
            return task.result()
        finally:
            death.cancel()

    def kill(self) -> None:
        """SIGKILL."""
        self.dead = True
        self.died.set()


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class Stuck(AssertionError):
    """Nothing is ready and nothing will ever be."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Virtual time moves only when nothing is ready. ``steps`` bounds a run that would never end."""

    def __init__(self, random: Random, *, steps: int = 400_000) -> None:
        super().__init__()
        self._random = random
        self._virtual = 0.0
        self._steps_left = steps
        self.processes: list[Process] = []
        self.dropped: list[asyncio.Handle] = []
        """What dead processes would have done next."""
        self._threads_free_at: dict[object, float] = {}
        self.slow_callback_duration = 1e9

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._when <= self._virtual:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        if not ready:
            if not scheduled:
                raise Stuck("nothing is ready and no timer runs")
            self._virtual = max(self._virtual, scheduled[0]._when)
            return
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Stuck("too many steps")
        chosen = self._random.randrange(len(ready)) if len(ready) > 1 else 0
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        handle = ready.pop()
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)
        if process is not None:
            if process.dead:
                self.dropped.append(handle)
                return
            if process.paused_until > self._virtual:
                # SIGSTOP: it goes on where it was, not knowing that time has passed.
                later = events.TimerHandle(process.paused_until, handle._callback, handle._args, self, handle._context)
                later._scheduled = True
                heapq.heappush(scheduled, later)
                return
        handle._run()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """``func`` runs a moment later, in one piece; on one executor one after the other."""
        future = self.create_future()
        at = self._virtual + self._random.random() * 0.004
        if executor is not None:
            at = self._threads_free_at[executor] = max(at, self._threads_free_at.get(executor, 0.0) + 1e-6)

        def act() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits the future
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_at(at, act)
        return future

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class SimulatedClock:
    """Both clocks follow the loop's virtual time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return truncate_to_ms(_START + timedelta(seconds=self._loop.time()))

    def monotonic(self) -> float:
        return self._loop.time()


def simulate(random: Random, story: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run ``story`` on a loop of its own, then let everything that is left of it end."""
    loop = SimulatedLoop(random)
    try:
        return loop.run_until_complete(story(loop))
    finally:
        _bury(loop)
        loop.close()


def _bury(loop: SimulatedLoop) -> None:
    """End all tasks, those of dead processes too, so that none is destroyed while pending."""
    for process in loop.processes:
        process.dead, process.paused_until = False, 0.0
    loop._ready.extend(loop.dropped)
    loop._steps_left = 200_000

    async def end() -> None:
        for _ in range(20):
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if not left:
                return
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                task.cancel()
            await asyncio.wait(left, timeout=3)

    loop.run_until_complete(end())
