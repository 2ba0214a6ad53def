"""The runner: generations belong to the server, not to whoever asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.core.events import Cursor, Snapshot
from antiphon.core.generation import Generation
from antiphon.core.ids import ConversationId, GenerationId
from antiphon.orchestrator.control import Control
from antiphon.orchestrator.ending import stored_ending, terminal_event
from antiphon.orchestrator.live import LiveFeed, LiveState
from antiphon.orchestrator.pace import Grid, is_outage, persist
from antiphon.orchestrator.planner import PromptPlanner
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.readers import Readers, Readership
from antiphon.orchestrator.response_cache import Starter
from antiphon.orchestrator.turn import Turn
from antiphon.orchestrator.writer import LogWriter
from antiphon.stores.conversations.base import Owner

log = structlog.get_logger(__name__)

_CANCEL_WAIT_S = 1.0
_CANCEL_POLL_S = 0.02
_FINISH_S = 5.0
_ANY_LEASE = timedelta(days=1)


@dataclass(slots=True, eq=False)
class _Run:
    """``generation`` is known once it is claimed."""

    control: Control
    holding: AbstractContextManager[Readership]
    task: asyncio.Task[None] | None = None
    generation: Generation | None = None


class Runner:
    """Claims generations and tells their stories in tasks of its own; no request's end reaches them.

    At most ``concurrency`` at once; the others wait in the store, which is the only queue. With ``sole_owner`` (a data
    folder that one server locks) no other process can run a generation, so leases left by a dead server count for nothing.
    """

    def __init__(self, ports: Ports, *, concurrency: int = 256, sole_owner: bool = True) -> None:
        self._ports = ports
        self._concurrency = concurrency
        self._sole_owner = sole_owner
        self._grid = Grid(ports.clock, ports.timing.coalesce_ms / 1000)
        self.readers = Readers(ports.clock)
        self.planner = PromptPlanner(ports)
        self.on_end: Callable[[Generation], None] = _nothing
        """Told of each generation of ours that is over, whichever way it ended."""
        self._runs: dict[GenerationId, _Run] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._sweep_now = asyncio.Event()
        self._turned_away = False
        self._claims_refused = False
        self._draining = False

    @property
    def draining(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._draining

    @property
    def running(self) -> int:
        """Generations that this runner owns now."""
        return len(self._runs)

    async def start(self) -> None:
        """Begin to sweep: at once, then every ``sweep_seconds``, take what is due, the dead server's generations first."""
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    def wake(self, generation_id: GenerationId, *, continues: GenerationId | None = None, starter: Starter | None = None) -> None:
        """Run a generation that has just been accepted. ``continues`` is the one whose text it goes on from, where known; ``starter``
        are its dealings with the response cache.
        """
        if generation_id in self._runs or self._draining:
            return
        if self._has_room():
            self._own(generation_id, beyond_lease=timedelta(0), continues=continues).control.starter = starter

    async def cancel(self, owner: Owner, generation_id: GenerationId, seen: Cursor | None = None) -> Generation:
        """Stop a generation in whatever phase it is, and return it, terminal. Repeating it changes nothing.

        The text kept is what was delivered to any reader, at least up to what the caller has ``seen``; all of it where other
        processes may have readers too. Takes a second at most; during an outage of the store the generation may come back not
        terminal yet. Raises ``NotFound``.
        """
        generation = await self._ask_to_cancel(owner, generation_id)
        if generation.status.terminal:
            await self.settle(generation)
            return generation
        with suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_WAIT_S):
                await self._stop(generation_id, seen_seq=0 if seen is None else seen.seq)
                while True:
                    generation = await self._ports.generations.get(owner, generation_id)
                    if generation.status.terminal:
                        break
                    await asyncio.sleep(_CANCEL_POLL_S)
        return generation

    async def _ask_to_cancel(self, owner: Owner, generation_id: GenerationId) -> Generation:
        """Note the wish in the store. Where that takes no writes, what runs here is stopped all the same."""
        generations = self._ports.generations
        try:
            return await generations.request_cancel(owner, generation_id, now=self._ports.clock.now())
        except (StoreUnavailable, DiskFull) as refusal:
            run = self._runs.get(generation_id)
            if run is None:
                raise
            log.warning("cancel_not_noted", generation_id=generation_id, error=type(refusal).__name__)
            claimed = run.generation
            if claimed is None or Owner(claimed.tenant_id, claimed.user_id) != owner:
                return await generations.get(owner, generation_id)
            return claimed

    async def stop_and_wait(self, generation_ids: Iterable[GenerationId]) -> None:
        """Cancel generations whose conversation is gone; returns when none of them writes any more, after 1 s at most."""
        stops = [asyncio.ensure_future(self._stop(generation_id, seen_seq=None, deleted=True)) for generation_id in generation_ids]
        if stops:
            _, pending = await asyncio.wait(stops, timeout=_CANCEL_WAIT_S)
            for stop in pending:
                stop.cancel()

    async def settle(self, generation: Generation) -> None:
        """Give the log of a terminal generation its last entry if a crash came between store and log. Cheap otherwise.

        Whoever opens a stream calls this with the row it has read, so that no reader waits for an end that was never written.
        """
        if not generation.status.terminal or generation.id in self._runs:
            return
        state = await self._ports.log.state(generation.id)
        if state is None or state.terminal is not None:
            return
        event = terminal_event(generation, stored_ending(generation), ttft_ms=generation.ttft_ms, duration_ms=generation.duration_ms or 0)
        stored = await self._ports.conversations.message(Owner(generation.tenant_id, generation.user_id), generation.message_id)
        epoch = max(state.epoch, generation.epoch)
        if stored.generation_id == generation.id and stored.content != state.text:
            # A journal that could not be written lost entries; those that stand for them must not look like them to a cursor.
            await LogWriter(self._ports.log, generation.id, epoch + 1).append(Snapshot(stored.content), event)
        else:
            await LogWriter(self._ports.log, generation.id, epoch).append(event)

    def live(self, generation_id: GenerationId) -> LiveState | None:
        """What a generation of ours is doing before its first text; ``None`` when there is nothing to say."""
        run = self._runs.get(generation_id)
        return None if run is None else run.control.live.state

    @asynccontextmanager
    async def reading(self, generation_id: GenerationId) -> AsyncIterator[AsyncIterator[LiveState | None]]:
        """Be one of the generation's readers while the context is open; enter it before reading anything of its log.

        Yields the live states from now on; they end with the generation, and at once where no runner owns it here.
        """
        async with self.readers.reading(generation_id):
            run = self._runs.get(generation_id)
            feed = LiveFeed() if run is None else run.control.live
            if run is None:
                feed.end()
            yield feed.states()

    def delivered(self, generation_id: GenerationId, seq: int) -> None:
        """Somebody was given the text up to ``seq`` without a stream."""
        readership = self.readers.get(generation_id)
        if readership is not None:
            readership.delivered(seq)

    def entitle(self, conversation_id: ConversationId, title: str) -> None:
        """Tell whoever reads a running answer of the conversation what that is called from now on."""
        for run in self._runs.values():
            if run.generation is not None and run.generation.conversation_id == conversation_id:
                run.control.live.entitle(title)

    def refuse_new(self) -> None:
        """Take nothing new from now on; what runs goes on."""
        self._draining = True

    async def drain(self, grace_s: float) -> None:
        """Let running generations finish for ``grace_s``, then leave the rest to the next start, text and ids in their logs.

        A generation that is being finalised gets five seconds more. Raises nothing.
        """
        self.refuse_new()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait((self._sweeper,))
        await _wait_for(self._runs.values(), grace_s)
        left = list(self._runs.values())
        _cancel(run for run in left if not run.control.finishing)
        await _wait_for(left, _FINISH_S)
        _cancel(left)
        await _wait_for(left, _FINISH_S)
        await self._hand_over(left)

    async def _sweep_for_ever(self) -> None:
        beyond_lease = _ANY_LEASE if self._sole_owner else timedelta(0)
        while True:
            try:
                await self._sweep(beyond_lease)
                beyond_lease = timedelta(0)
            except Exception as error:
                log.warning("sweep_failed", error=type(error).__name__, exc_info=not is_outage(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._ports.timing.sweep_seconds):
                    await self._sweep_now.wait()
            self._sweep_now.clear()

    async def _sweep(self, beyond_lease: timedelta) -> None:
        now = await self._ports.generations.now()
        for generation_id in await self._ports.generations.due(now=now + beyond_lease, limit=2 * self._concurrency):
            if generation_id not in self._runs and self._has_room():
                self._own(generation_id, beyond_lease=beyond_lease)
                if self._claims_refused:  # one finds out whether the store takes claims again
                    break
        await self._ports.log.expire(now=self._ports.clock.now())

    def _has_room(self) -> bool:
        """Whether one more may run; who is turned away is looked for again as soon as one ends."""
        self._turned_away = self._turned_away or len(self._runs) >= self._concurrency
        return len(self._runs) < self._concurrency

    def _own(self, generation_id: GenerationId, *, beyond_lease: timedelta, continues: GenerationId | None = None) -> _Run:
        holding = self.readers.holding(generation_id)
        run = self._runs[generation_id] = _Run(Control(holding.__enter__(), continues=continues), holding)
        run.task = asyncio.create_task(self._run(generation_id, run, beyond_lease), name=generation_id)
        return run

    async def _run(self, generation_id: GenerationId, run: _Run, beyond_lease: timedelta) -> None:
        try:
            run.generation = await self._claimed(generation_id, beyond_lease)
            if run.generation is not None:
                await Turn(self._ports, run.generation, run.control, self._grid, self.planner).run()
        except Exception:  # the task's end: nobody awaits it, and the sweeper claims the generation again
            log.exception("generation_not_claimed", generation_id=generation_id)
        finally:
            run.control.live.end()
            run.holding.__exit__(None, None, None)
            del self._runs[generation_id]
            if run.generation is not None:
                self.planner.forget(run.generation.message_id)
                if not self._draining:
                    self.on_end(run.generation)
            if self._turned_away:
                self._turned_away = False
                self._sweep_now.set()

    async def _claimed(self, generation_id: GenerationId, beyond_lease: timedelta) -> Generation | None:
        """``None`` where it is not ours to run, or the store refuses: then the sweeper brings it again."""
        try:
            if self._claims_refused:
                generation = await self._claim(generation_id, beyond_lease)
            else:
                generation = await persist(lambda: self._claim(generation_id, beyond_lease), what="claim")
        except Exception as error:
            if not is_outage(error):
                raise
            if not self._claims_refused:
                log.warning("claims_refused", error=type(error).__name__)
            self._claims_refused = True
            return None
        if self._claims_refused:
            self._claims_refused = False
            self._sweep_now.set()
            log.info("claims_taken_again")
        return generation

    async def _claim(self, generation_id: GenerationId, beyond_lease: timedelta) -> Generation | None:
        now = await self._ports.generations.now()
        lease_until = now + timedelta(seconds=self._ports.timing.lease_seconds)
        return await self._ports.generations.claim(generation_id, now=now + beyond_lease, lease_until=lease_until)

    async def _stop(self, generation_id: GenerationId, *, seen_seq: int | None, deleted: bool = False) -> None:
        """Tell whoever runs it here to stop and see it end; run it to its cancelled end where nobody does."""
        run = self._runs.get(generation_id)
        if run is None and not self._draining:
            run = self._own(generation_id, beyond_lease=_ANY_LEASE if self._sole_owner else timedelta(0))
        if run is not None and run.task is not None:
            # Other servers' readers are not known here, so where there may be some, nothing is taken back.
            run.control.deleted = run.control.deleted or deleted
            run.control.stop(seen_seq if self._sole_owner else None)
            await asyncio.wait((run.task,))

    async def _hand_over(self, runs: Sequence[_Run]) -> None:
        """End their leases now, so that the next start need not wait for them."""
        left = [run.generation for run in runs if run.generation is not None]
        generations = self._ports.generations
        try:
            now = await generations.now()
        except Exception as error:  # noqa: BLE001 - nobody is handed over then: each is claimed when its lease ends
            log.warning("nothing_handed_over", error=type(error).__name__)
            return
        ends = await asyncio.gather(*(generations.heartbeat(one.id, one.epoch, lease_until=now) for one in left), return_exceptions=True)
        log.info("generations_handed_over", handed_over=sum(not isinstance(end, BaseException) for end in ends), running=len(left))


def _cancel(runs: Iterable[_Run]) -> None:
    for run in runs:
        if run.task is not None:
            run.task.cancel()


async def _wait_for(runs: Iterable[_Run], timeout_s: float) -> None:
    tasks = [run.task for run in runs if run.task is not None and not run.task.done()]
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


def _nothing(_generation: Generation) -> None:
    pass
