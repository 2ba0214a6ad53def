"""The gateway: take a request, let it wait its turn, place it on a replica, and pass on what the replica says.

One object between orchestrator and engines. Decisions are made by the pure parts (``admission``, ``fleet``); processes are
kept alive by the supervisors; the gateway joins them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import zmq

from antiphon.core import telemetry as metrics
from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed, Forbidden, ModelGone, ModelUnusable
from antiphon.core.events import Queued
from antiphon.core.telemetry import Telemetry
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineEvent, EngineRequest, Finished, Tokenizer
from antiphon.inference.admission import Admit, Decision, Downgrade, Look, Queue, Shed, capped, decide, within_limit
from antiphon.inference.ask import Ask, ask_of
from antiphon.inference.fleet import PoolStatus, ReplicaStatus, ServedPool
from antiphon.inference.pool import Pool
from antiphon.inference.pool_replicas import PoolRuntime
from antiphon.inference.request_events import RequestEvents
from antiphon.inference.residency import Residency
from antiphon.inference.resident_models import ResidentModels
from antiphon.inference.supervisor import ipc_address, prepare_runtime_dir, remove_runtime_dir
from antiphon.inference.ticket import Ticket
from antiphon.inference.wire import LogFormat

__all__ = ["Admit", "Ask", "Decision", "Downgrade", "Gateway", "PoolRuntime", "Queue", "Shed"]

log = structlog.get_logger(__name__)

_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class _Reservation:
    """A place that is kept in ``pool``; ``instead_of`` the pool that the ``conversation`` asked for, where that is another."""

    pool: Pool
    instead_of: Pool | None = None
    conversation: str = ""


class Gateway:
    """All pools of this server. Made and used inside one event loop; ``start`` before anything else, ``close`` at the end."""

    def __init__(
        self,
        pools: Sequence[PoolRuntime],
        clock: Clock,
        telemetry: Telemetry,
        *,
        runtime_dir: Path,
        log_format: LogFormat = "text",
        residency: Residency | None = None,
    ) -> None:
        """``residency`` is of those pools whose models share a memory budget; the others' are always in memory."""
        self._log_format: LogFormat = log_format
        self._telemetry = telemetry
        self._runtime_dir = runtime_dir
        self._changed = asyncio.Event()
        self._pools = {runtime.spec.name: Pool(runtime, clock, telemetry, self._changed.set) for runtime in pools}
        self._clock = clock
        self._sockets = 0
        self._tickets: dict[str, tuple[Pool, Ticket]] = {}
        self._reserved: dict[str, _Reservation] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        shared = [] if residency is None else [pool for name, pool in self._pools.items() if name in residency]
        self._residents = None if residency is None else ResidentModels(shared, residency, clock, self._start)

    async def start(self) -> None:
        """Start the replicas of every model that fits in memory; returns before they are ready. ``runtime_dir`` becomes private, stale
        sockets go.

        Raises ``ValueError`` when the folder's path is too long for a socket.
        """
        ipc_address(self._runtime_dir, "0000-000000.sock")
        await asyncio.to_thread(prepare_runtime_dir, self._runtime_dir)
        self._context = zmq.Context()
        for pool in self._pools.values():
            if self._residents is None or pool.name not in self._residents:
                self._start(pool)
        if self._residents is not None:
            self._residents.begin()
        self._ticking = asyncio.create_task(self._tick_for_ever(), name="gateway")

    def _start(self, pool: Pool) -> None:
        assert self._context is not None
        pool.start(self._context, self._runtime_dir, self._sockets, self._log_format)
        self._sockets += pool.runtime.spec.replicas

    def add(self, runtime: PoolRuntime) -> None:
        """One pool more, its replicas starting; its name must be new."""
        assert self._context is not None
        assert runtime.spec.name not in self._pools
        pool = Pool(runtime, self._clock, self._telemetry, self._changed.set)
        self._start(pool)
        self._pools[runtime.spec.name] = pool

    async def remove(self, name: str) -> None:
        """One pool less: it is gone for newcomers at once, its requests fail, and its replicas have ended when this returns."""
        pool = self._pools.pop(name)
        await pool.close("This model was taken away.")

    async def close(self) -> None:
        """Stop every replica; no process, no socket file and no empty runtime folder is left. Harmless when called twice."""
        if self._context is None:
            return
        context, self._context = self._context, None
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait((self._ticking,))
        if self._residents is not None:
            await self._residents.close()
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
        await asyncio.to_thread(context.term)
        await asyncio.to_thread(remove_runtime_dir, self._runtime_dir)

    async def wait_ready(self, timeout_s: float) -> None:
        """Return when every pool has a ready replica; one whose server is not ours holds up nobody once it has failed to answer.

        Raises ``ModelUnusable`` with the worker's own sentence when a model cannot be served, ``EngineFailed`` when an
        engine cannot start or the time is over.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not all(pool.settled for pool in self._pools.values()):
                    self._changed.clear()
                    self._raise_failures()
                    await self._changed.wait()
        except TimeoutError:
            late = ", ".join(name for name, pool in self._pools.items() if not pool.ready)
            raise EngineFailed(f"Not ready after {timeout_s:g} s: {late}.") from None

    def _raise_failures(self) -> None:
        for pool in self._pools.values():
            failure = None if pool.settled else pool.failure
            if failure is not None:
                raise ModelUnusable(failure.error) if failure.code == ModelUnusable.code else EngineFailed(failure.error)

    # --- what is there ------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether some pool can answer now, or as soon as its model is loaded again."""
        return any(pool.ready for pool in self._pools.values()) or (self._residents is not None and self._residents.opened)

    def want(self, pool: str, request_id: str) -> Queued:
        """Somebody waits until the pool's model is known, which it is once it was loaded; to be said again and again meanwhile.

        Returns where the request stands: in the place that was kept for it, else behind everybody.
        """
        owner = self._pool(pool)
        owner.want()
        return self.reserved(request_id) or owner.behind()

    def loading(self, pool: str) -> bool:
        """Whether the pool's model is on its way into memory, and nobody can be served before."""
        return self._pool(pool).loading

    def why_late(self, pool: str) -> str:
        """What to tell somebody whom the pool did not serve in time."""
        return self._pool(pool).why_late

    def load_times(self) -> dict[str, float]:
        """Seconds that models took to load the last time, by their names."""
        return {pool.runtime.spec.model: pool.usual_load_s for pool in self._pools.values() if pool.usual_load_s is not None}

    def statuses(self, band: Band = Band.STANDARD) -> tuple[PoolStatus, ...]:
        """All pools, as one who would wait in ``band`` sees them."""
        return tuple(pool.status(band) for pool in self._pools.values())

    def replicas(self, pool: str) -> tuple[ReplicaStatus, ...]:
        return self._pool(pool).replicas()

    def refused(self, pool: str) -> int:
        """Turns refused since the start."""
        return self._pool(pool).shed_count

    def downgraded(self, pool: str) -> int:
        """Turns that a smaller model was given since the start."""
        return self._pool(pool).downgrade_count

    def waiting(self, pool: str) -> dict[Band, int]:
        """Requests in the pool's line, by band, the highest first."""
        return self._pool(pool).waiting()

    def resolve(self, name: str | None, allowed: Sequence[str]) -> ServedPool:
        """The pool called ``name``, or the one that serves the model ``name``. ``allowed`` holds names of either kind; empty: all.

        ``None`` means the first of ``allowed`` that exists, or the first pool. Raises ``ModelGone`` when there is no such
        pool and ``Forbidden`` when it is not allowed.
        """
        if name is None:
            wanted = [pool for entry in allowed for pool in self._named(entry)] if allowed else list(self._pools.values())
            if not wanted:
                raise ModelGone
            return wanted[0].served
        named = self._named(name)
        if not named:
            raise ModelGone
        for pool in named:
            if not allowed or pool.name in allowed or pool.runtime.spec.model in allowed:
                return pool.served
        raise Forbidden("Your plan does not include this model.")

    def tokenizer(self, pool: str) -> Tokenizer:
        """The tokenizer of a pool. Blocks until it is read; ``tokenizers_read`` has waited for that."""
        return self._pool(pool).runtime.tokenizer()

    async def tokenizers_read(self) -> None:
        """Wait until every pool's tokenizer is there; raises ``ModelUnusable`` when one cannot be read."""
        await asyncio.gather(*(asyncio.to_thread(pool.runtime.tokenizer) for pool in self._pools.values()))

    # --- requests -----------------------------------------------------------------------------

    def smaller(self, pool: str) -> ServedPool | None:
        """The pool that ``pool`` falls back on under load, if it has one."""
        name = self._pool(pool).runtime.spec.downgrade_to
        return self._pools[name].served if name in self._pools else None

    def decide(self, pool: str, ask: Ask) -> Decision:
        """What would happen to such a request now. Takes no place."""
        return self._decide(self._pool(pool), ask, "")[0]

    def accept(self, request_id: str, pool: str, ask: Ask) -> Decision:
        """Decide, and take the place in the line that was decided on: ``stream`` or ``withdraw`` follows. Nothing is taken
        where the decision is ``Shed``.
        """
        owner = self._pool(pool)
        decision, look = self._decide(owner, ask, request_id)
        match decision:
            case Shed():
                owner.shed_count += 1
                self._telemetry.count(metrics.SHED, 1, pool, decision.code)
            case Downgrade():
                smaller = self._pool(decision.pool)
                smaller.reserve(request_id, capped(_as_trimmed(ask, smaller), decision.then), look)
                self._reserved[request_id] = _Reservation(smaller, owner, ask.conversation)
            case _:
                owner.reserve(request_id, capped(ask, decision), look)
                self._reserved[request_id] = _Reservation(owner)
        return decision

    def withdraw(self, request_id: str) -> None:
        """An accepted request will not come after all. Unknown ids are ignored."""
        place = self._reserved.pop(request_id, None)
        if place is not None:
            place.pool.withdraw(request_id)

    def reserved(self, request_id: str) -> Queued | None:
        """Where an accepted request stands whose stream has not begun; ``None`` where there is no such place."""
        place = self._reserved.get(request_id)
        return None if place is None else place.pool.reserved(request_id)

    async def stream(
        self, pool: str, request: EngineRequest, *, deadline_s: float, ask: Ask | None = None
    ) -> AsyncGenerator[EngineEvent | Queued]:
        """``open`` as an iterator; closing it closes the request's events."""
        events = self.open(pool, request, deadline_s=deadline_s, ask=ask)
        try:
            event: EngineEvent | Queued | None = None
            while not isinstance(event, Finished):
                event = await events.next()
                yield event
        finally:
            events.close()

    def open(self, pool: str, request: EngineRequest, *, deadline_s: float, ask: Ask | None = None) -> RequestEvents:
        """Ask for what was accepted; it takes the place that ``accept`` gave it, else the last one.

        Its events end with a ``Finished``; ``Queued`` comes each time its place in the line changes. Σ ``Tokens.token_ids`` +
        ``already_ids`` is ``usage.output_tokens``; the ids include the end-of-turn token, which has no text. After ``deadline_s``
        without a replica reading them raises ``QueueTimeout``, and ``EngineFailed`` as soon as its replica dies. Raises ``ModelGone``.
        """
        owner = self._pool(pool)
        deadline = asyncio.get_running_loop().time() + deadline_s
        place = self._reserved.pop(request.request_id, _Reservation(owner))
        if place.pool is not owner:
            raise EngineFailed("The request came to another pool than was decided.")
        if place.instead_of is not None:
            self._note_downgrade(place.instead_of, place.conversation)
        ticket = owner.enter(request, ask or ask_of(request))
        self._tickets[request.request_id] = (owner, ticket)
        return RequestEvents(owner, ticket, deadline, self._forget)

    def _forget(self, pool: Pool, ticket: Ticket) -> None:
        request = ticket.request
        if request is not None and self._tickets.get(request.request_id) == (pool, ticket):
            del self._tickets[request.request_id]

    def cancel(self, request_id: str) -> bool:
        """Stop a request and let its stream end with a ``Finished`` that says ``cancelled`` and what it cost; at most one step later.

        ``False`` when no such stream is open.
        """
        entry = self._tickets.get(request_id)
        if entry is None:
            return False
        pool, ticket = entry
        pool.cancel(ticket)
        return True

    def set_band(self, request_id: str, band: Band) -> bool:
        """Move a request under way to another band: in the pool's line, and inside the replica. ``False``: no such stream is open."""
        entry = self._tickets.get(request_id)
        if entry is None:
            return False
        pool, ticket = entry
        pool.set_band(ticket, band)
        return True

    # --- inside -------------------------------------------------------------------------------

    def _decide(self, owner: Pool, ask: Ask, request_id: str) -> tuple[Decision, Look]:
        """The decision, and the look at the pool where it would be served."""
        here, small = owner.look(ask), self._pools.get(owner.runtime.spec.downgrade_to)
        sticky = ask.downgrade and owner.sticky.holds(ask.conversation, self._clock.monotonic(), high=owner.high)
        there: Look | None = None
        if small is not None and ask.downgrade and (sticky or not within_limit(ask, here)):
            there = small.look(_as_trimmed(ask, small))
        decision = decide(ask, here, there, sticky=sticky)
        if isinstance(decision, Shed) and decision.code == "high_demand" and request_id:
            decision = Shed(decision.code, round(1000 * owner.retry_after_s(ask, here, request_id)))
        return decision, there if isinstance(decision, Downgrade) and there is not None else here

    def _note_downgrade(self, owner: Pool, conversation: str) -> None:
        """A turn asked of ``owner`` goes to its smaller pool. Only now: what is decided at Accept may be taken back."""
        owner.sticky.give(conversation, self._clock.monotonic())
        owner.downgrade_count += 1
        self._telemetry.count(metrics.DOWNGRADES, 1, owner.name)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for pool in self._pools.values():
                try:
                    pool.tick()
                except Exception:  # one pool's fault must not silence the others
                    log.exception("tick_failed", pool=pool.name)
            if self._residents is not None:
                self._residents.look()
            self._reserved = {name: place for name, place in self._reserved.items() if place.pool.holds(name)}

    def _pool(self, name: str) -> Pool:
        pool = self._pools.get(name)
        if pool is None:
            raise ModelGone
        return pool

    def _named(self, name: str) -> list[Pool]:
        """The pool called ``name`` first, then those that serve a model of that name."""
        pools = self._pools.values()
        return [pool for pool in pools if pool.name == name] + [
            pool for pool in pools if pool.runtime.spec.model == name and pool.name != name
        ]


def _as_trimmed(ask: Ask, smaller: Pool) -> Ask:
    """What a turn that may be downgraded asks of the smaller pool: whoever asks trims its prompt to the model that answers."""
    return ask.within(smaller.served.context_tokens)
