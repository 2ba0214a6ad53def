"""One pool: its replicas, the line before them, and the requests under way. An async shell around ``PoolPolicy``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
import zmq

from antiphon.core import telemetry as metrics
from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed, QueueTimeout
from antiphon.core.events import Queued
from antiphon.core.generation import FinishReason, Sampling
from antiphon.core.ids import TenantId
from antiphon.core.pools import PoolSpec
from antiphon.core.telemetry import Telemetry
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineEvent, EngineRequest, EngineUsage, Finished, Prefilling, ReplicaSpec, Tokenizer, Tokens
from antiphon.inference.admission import Look
from antiphon.inference.ask import Ask
from antiphon.inference.fleet import PoolStatus, ReplicaLedger, ReplicaStatus, ServedPool
from antiphon.inference.pool_policy import Availability, PoolPolicy, PoolRules, Standing
from antiphon.inference.prefix_cache import prompt_fingerprints
from antiphon.inference.shell import ReplicaShell
from antiphon.inference.stickiness import Stickiness
from antiphon.inference.supervisor import SupervisedReplica, SupervisorState
from antiphon.inference.ticket import Ticket
from antiphon.inference.wire import (
    Cancel,
    FailedFrame,
    FinishedFrame,
    LogFormat,
    PrefillFrame,
    ReplicaReady,
    SequenceFrame,
    SetBand,
    StartFailure,
    Submit,
    TokensFrame,
)

log = structlog.get_logger(__name__)

_UNCLAIMED_S = 15.0
"""A place that was taken at Accept and whose request never came is given up."""
_SHORT_PAUSE_S = 5.0
"""A replica that failed and will be tried again within so long is waited for."""
_BANDS = tuple(sorted(Band, reverse=True))
_FEW = 16
"""So few in line are told at once when something changes; more, at the next tick."""


@dataclass(frozen=True, slots=True)
class PoolRuntime:
    """A configured pool, ready to be started. ``tokenizer`` gives the pool's tokenizer, and may block while it is being read."""

    spec: PoolSpec
    replica: ReplicaSpec
    tokenizer: Callable[[], Tokenizer]


class Pool:
    """Everything about one pool that changes. Lives in one event loop."""

    def __init__(self, runtime: PoolRuntime, clock: Clock, telemetry: Telemetry, on_change: Callable[[], None]) -> None:
        self.runtime = runtime
        self._clock = clock
        self._telemetry = telemetry
        self._on_change = on_change
        self._shells: list[ReplicaShell[Ticket]] = []
        spec = runtime.spec
        rules = PoolRules(spec.name, spec.model, spec.queue_limit, fair=runtime.replica.order == "fair")
        self._ledgers = [ReplicaLedger() for _ in range(spec.replicas)]
        self._policy: PoolPolicy[int] = PoolPolicy(rules, self._ledgers, clock.monotonic())
        self._tickets: dict[int, Ticket] = {}
        self._reserved: dict[str, Ticket] = {}
        self._reported: dict[Band, int] = {}
        self._numbers = 0
        self._handles = 0
        self._context_tokens = 0
        self._release = ""
        self.sticky = Stickiness()
        self.shed_count = 0
        self.downgrade_count = 0

    @property
    def name(self) -> str:
        return self.runtime.spec.name

    def start(self, context: zmq.Context[zmq.Socket[bytes]], runtime_dir: Path, first_number: int, log_format: LogFormat) -> None:
        """Start every replica; sockets are numbered from ``first_number``."""
        for index, ledger in enumerate(self._ledgers):
            replica = SupervisedReplica(f"{self.name}-{index}", first_number + index, self.runtime.replica, runtime_dir, log_format)
            shell = ReplicaShell[Ticket](self, replica, ledger, context, self._clock, self._telemetry)
            self._shells.append(shell)
            shell.supervisor.start()

    async def close(self, reason: str = "The server is shutting down.") -> None:
        """Stop every replica; requests still here fail with ``reason``."""
        for ticket in list(self._tickets.values()):
            self._policy.leave(ticket.number, self._clock.monotonic())
            self._fail(ticket, EngineFailed(reason))
        await asyncio.gather(*(shell.supervisor.close() for shell in self._shells))

    # --- what others ask ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return any(shell.supervisor.state is SupervisorState.READY for shell in self._shells)

    @property
    def settled(self) -> bool:
        """Whether a start need not wait for this pool: it is ready, or its server is somebody else's and not there."""
        return self.ready or (self.runtime.spec.engine == "openai" and self.failure is not None)

    @property
    def failure(self) -> StartFailure | None:
        """Why no replica could be started, when all have tried and failed."""
        failures = [shell.supervisor.failure for shell in self._shells]
        return failures[0] if failures and all(failures) else None

    @property
    def served(self) -> ServedPool:
        return ServedPool(self.name, self.runtime.spec.model, self._context_tokens, release=self._release)

    def status(self, band: Band = Band.STANDARD) -> PoolStatus:
        """The pool as one who would wait in ``band`` sees it."""
        now = self._clock.monotonic()
        availability = self._availability(now)
        states = {shell.supervisor.state for shell in self._shells}
        loading = states & {SupervisorState.LOADING, SupervisorState.RESTARTING}
        wait_s = self._policy.band_wait_s(band, now) if self.ready else availability.opening_s
        busy = self._policy.high or self._policy.waiting_count > 0
        return PoolStatus(
            name=self.name,
            model=self.runtime.spec.model,
            status="ready" if self.ready else ("loading" if loading else "down"),
            load="full" if not self.ready or self._policy.refuses(now) else ("high" if busy else "normal"),
            wait_ms=round(1000 * wait_s),
            context_tokens=self._context_tokens,
            release=self._release,
        )

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(shell.status() for shell in self._shells)

    def waiting(self) -> dict[Band, int]:
        """Requests in the line, by band."""
        return {band: self._policy.waiting(band) for band in _BANDS}

    def look(self, ask: Ask) -> Look:
        """What a newcomer would meet."""
        now = self._clock.monotonic()
        return self._policy.look(ask, now, self._availability(now))

    def retry_after_s(self, ask: Ask, look: Look, name: str) -> float:
        return self._policy.retry_after_s(ask, look, self._clock.monotonic(), name)

    @property
    def high(self) -> bool:
        return self._policy.high

    # --- a request ----------------------------------------------------------------------------

    def reserve(self, request_id: str, ask: Ask, look: Look) -> None:
        """Let an accepted request wait from now on, though itself it comes later, to ``enter``."""
        self.withdraw(request_id)
        self._reserved[request_id] = self._new_ticket(ask, ready=False, look=look)

    def withdraw(self, request_id: str) -> None:
        """It will not come. Unknown ids are ignored."""
        ticket = self._reserved.pop(request_id, None)
        if ticket is not None:
            self.leave(ticket)

    def holds(self, request_id: str) -> bool:
        """Whether a place is kept for the request."""
        return request_id in self._reserved

    def reserved(self, request_id: str) -> Queued | None:
        """Where a request stands that has not come yet; ``None`` where it has no place."""
        ticket = self._reserved.get(request_id)
        return None if ticket is None else self._told(ticket)

    def enter(self, request: EngineRequest, ask: Ask) -> Ticket:
        """Take an accepted request, on its reserved place if it has one; ``leave`` must follow."""
        ticket = self._reserved.pop(request.request_id, None)
        if ticket is None:
            ticket = self._new_ticket(ask, ready=True, look=self.look(ask))
        ticket.ask, ticket.request = ask, request
        fingerprints = prompt_fingerprints(request.prompt_ids, request.tenant_id, request.public_prefix_tokens)
        self._policy.attach(ticket.number, ask, fingerprints)
        self.pump()
        told = self._told(ticket)
        if told is not None:
            ticket.mailbox.put(told)
        return ticket

    async def next_event(self, ticket: Ticket, deadline: float) -> EngineEvent | Queued:
        """The ticket's next event. Raises ``EngineFailed``, and ``QueueTimeout`` at ``deadline`` (the loop's time) without a replica."""
        event = ticket.mailbox.take()
        while event is None:
            if ticket.replica is not None or ticket.ended:
                event = await ticket.mailbox.get()
                break
            try:
                async with asyncio.timeout_at(deadline):
                    event = await ticket.mailbox.get()
            except TimeoutError:
                if ticket.replica is None and not ticket.ended:
                    raise QueueTimeout("No model became free in time.") from None
        if isinstance(event, Tokens):
            ticket.read_tokens += len(event.token_ids)
        return event

    def leave(self, ticket: Ticket) -> None:
        """The reader has gone: a request that has not ended is cancelled, its blocks free after the current step."""
        if ticket.ended:
            return
        if self._policy.leave(ticket.number, self._clock.monotonic()):
            self._end(ticket)
            self._say_standings()
        elif ticket.replica is not None:
            ticket.replica.send(Cancel(ticket.handle))

    def cancel(self, ticket: Ticket) -> None:
        """Stop a request whose reader stays: its events end with a ``Finished`` that says ``cancelled`` and what it cost."""
        waited = ticket.replica is None and not ticket.ended
        self.leave(ticket)
        if waited and ticket.request is not None:
            queued_ms = round(1000 * (self._clock.monotonic() - ticket.entered_at))
            already = len(ticket.request.already_ids)
            usage = EngineUsage(0, 0, already, queued_ms, 0, 0, 0)
            ticket.mailbox.put(Finished(FinishReason.CANCELLED, usage))

    def set_band(self, ticket: Ticket, band: Band) -> None:
        """Let a request wait, and be computed, as one of ``band``; last in that band's line."""
        if ticket.ended or ticket.ask.band is band or ticket.request is None:
            return
        ticket.ask, ticket.request = replace(ticket.ask, band=band), replace(ticket.request, band=band)
        if ticket.replica is not None:
            ticket.replica.send(SetBand(ticket.handle, band))
        else:
            self._policy.set_band(ticket.number, band)
            self.pump()

    # --- dispatch -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Send whom the replicas can take, in the line's order."""
        if not self._policy.waiting_count:
            return
        now = self._clock.monotonic()
        sent = False
        while (chosen := self._policy.next(now)) is not None:
            number, index = chosen
            if not self._dispatch(self._tickets[number], index, now):
                break
            sent = True
        if sent:
            self._say_standings()

    def tick(self) -> None:
        """Once a second: tell those that wait where they stand, give up places that nobody came for, try what was broken."""
        now = self._clock.monotonic()
        for request_id, ticket in list(self._reserved.items()):
            if now - ticket.entered_at > _UNCLAIMED_S:
                log.warning("place_unclaimed", pool=self.name, request=request_id)
                self.withdraw(request_id)
        for index, shell in enumerate(self._shells):
            if shell.supervisor.state is SupervisorState.READY and self._ledgers[index].breaker.wants_probe(now):
                self._probe(shell, index)
        self.pump()
        self._policy.feel(now)
        self._say_standings(everybody=True)

    def _dispatch(self, ticket: Ticket, index: int, now: float) -> bool:
        shell = self._shells[index]
        assert ticket.request is not None, "only one that is ready is sent"
        try:
            shell.supervisor.send(Submit(self._handles + 1, ticket.request))
        except EngineFailed:
            return False
        self._handles += 1
        self._policy.started(ticket.number, index, self._handles, now)
        ticket.replica, ticket.handle, ticket.queued_s = shell, self._handles, now - ticket.entered_at
        shell.took(self._handles, ticket)
        self._telemetry.observe(metrics.QUEUE_SECONDS, ticket.queued_s, self.name, ticket.ask.band.name.lower())
        return True

    def _probe(self, shell: ReplicaShell[Ticket], index: int) -> None:
        """One token, asked of a replica that failed: its answer says whether it may be trusted again."""
        request = EngineRequest("probe", TenantId("probe"), (0,), Sampling(max_tokens=1, temperature=0.0), ignore_end_of_turn=True)
        ticket = Ticket(Ask("probe", "", 1, 1), self._clock.monotonic(), 0, request, probe=True)
        try:
            shell.supervisor.send(Submit(self._handles + 1, request))
        except EngineFailed:
            return
        self._handles += 1
        self._ledgers[index].breaker.probed()
        ticket.replica, ticket.handle = shell, self._handles
        shell.took(self._handles, ticket)

    def _new_ticket(self, ask: Ask, *, ready: bool, look: Look) -> Ticket:
        now = self._clock.monotonic()
        self._numbers += 1
        ticket = self._tickets[self._numbers] = Ticket(ask, now, self._numbers)
        self._policy.enter(self._numbers, ask, now, ready=ready, look=look)
        self._report_waiting()
        return ticket

    def _end(self, ticket: Ticket) -> None:
        ticket.ended = True
        self._tickets.pop(ticket.number, None)

    def _told(self, ticket: Ticket) -> Queued | None:
        standing = self._policy.standing(ticket.number, self._clock.monotonic())
        return None if standing is None else self._queued(standing)

    def _say_standings(self, *, everybody: bool = False) -> None:
        """Tell those in the line what has changed for them."""
        if everybody or self._policy.waiting_count <= _FEW:
            for standing in self._policy.standings(self._clock.monotonic()):
                self._tickets[standing.key].mailbox.put(self._queued(standing))
        self._report_waiting()

    def _queued(self, standing: Standing[int]) -> Queued:
        if self.ready:
            return Queued(standing.position, standing.eta_ms)
        opening_s = self._availability(self._clock.monotonic()).opening_s
        return Queued(standing.position, standing.eta_ms + round(1000 * opening_s), starting=True)

    def _report_waiting(self) -> None:
        for band, waiting in self.waiting().items():
            if self._reported.get(band) != waiting:
                self._reported[band] = waiting
                self._telemetry.gauge(metrics.REQUESTS_WAITING, waiting, self.name, band.name.lower())

    def _availability(self, now: float) -> Availability:
        states = [shell.supervisor.state for shell in self._shells]
        usable = [
            ledger
            for state, ledger in zip(states, self._ledgers, strict=False)
            if state in {SupervisorState.READY, SupervisorState.RESTARTING} and ledger.breaker.opens_in_s(now) <= _SHORT_PAUSE_S
        ]
        opening = [
            max(shell.supervisor.expected_wait_s() if state is not SupervisorState.READY else 0.0, ledger.breaker.opens_in_s(now))
            for shell, state, ledger in zip(self._shells, states, self._ledgers, strict=False)
        ]
        return Availability(bool(usable), min(opening, default=0.0))

    # --- what replicas say (``ReplicaOwner``) ---------------------------------------------------

    def on_state_changed(self, ready: ReplicaReady | None) -> None:
        """A replica has become ready, or has ended."""
        if ready is not None:
            self._context_tokens, self._release = ready.context_tokens, ready.release
        self.pump()
        self._on_change()

    def on_capacity(self) -> None:
        self.pump()

    def on_frame(self, ticket: Ticket, frame: SequenceFrame) -> bool:
        """Pass on what a replica did for a request; ``True`` when that was its end."""
        match frame:
            case TokensFrame():
                self._token_gap(ticket)
                self._policy.progressed(ticket.number, len(frame.token_ids))
                ticket.mailbox.put(Tokens(frame.token_ids, frame.text))
            case PrefillFrame():
                ticket.mailbox.put(Prefilling(frame.done_tokens, frame.total_tokens))
            case FinishedFrame():
                self._finish(ticket, frame)
            case FailedFrame():
                self._fail(ticket, EngineFailed(frame.detail))
        return ticket.ended

    def on_lost(self, ticket: Ticket) -> None:
        """Its replica has died."""
        self._fail(ticket, EngineFailed("The engine stopped while it was writing this answer."))

    def _token_gap(self, ticket: Ticket) -> None:
        now = self._clock.monotonic()
        if ticket.last_token_at is not None:
            self._telemetry.observe(metrics.ITL, now - ticket.last_token_at, self.name)
        ticket.last_token_at = now

    def _finish(self, ticket: Ticket, frame: FinishedFrame) -> None:
        reason, usage = FinishReason(frame.reason), frame.usage
        if ticket.replica is not None and reason is not FinishReason.CANCELLED:
            ticket.replica.ledger.breaker.succeeded()
        if ticket.probe or ticket.request is None:
            self._end(ticket)
            return
        cut = None if reason is FinishReason.CANCELLED else reason is FinishReason.LENGTH
        computed = usage.output_tokens - len(ticket.request.already_ids)
        fresh = usage.prompt_tokens - usage.cached_tokens
        self._policy.ended(ticket.number, cut=cut, computed_tokens=fresh, cached_tokens=usage.cached_tokens)
        self._end(ticket)
        self._telemetry.count(metrics.PROMPT_TOKENS, usage.prompt_tokens, self.name)
        self._telemetry.count(metrics.CACHED_TOKENS, usage.cached_tokens, self.name)
        self._telemetry.count(metrics.OUTPUT_TOKENS, computed, self.name)
        if reason is FinishReason.CANCELLED:
            self._telemetry.count(metrics.WASTED_TOKENS, max(computed - ticket.read_tokens, 0), self.name)
        whole = EngineUsage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            queued_ms=usage.queued_ms + round(1000 * ticket.queued_s),
            prefill_ms=usage.prefill_ms,
            decode_ms=usage.decode_ms,
            accelerator_ms=usage.accelerator_ms,
        )
        ticket.mailbox.put(Finished(reason, whole, frame.text))

    def _fail(self, ticket: Ticket, failure: EngineFailed) -> None:
        self._policy.ended(ticket.number)
        self._end(ticket)
        ticket.mailbox.fail(failure)
