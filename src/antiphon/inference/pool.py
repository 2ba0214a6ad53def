"""One pool: its replicas, the line before them, and the requests under way. An async shell around pure parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
import zmq

from antiphon.core import telemetry as metrics
from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed, QueueTimeout
from antiphon.core.events import Queued
from antiphon.core.generation import FinishReason
from antiphon.core.pools import PoolSpec
from antiphon.core.telemetry import Telemetry
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineEvent, EngineRequest, EngineUsage, Finished, Prefilling, ReplicaSpec, Tokenizer, Tokens
from antiphon.inference.admission import Decision, DrainMeter, PoolView, WaitingLine, decide, eta_ms
from antiphon.inference.fleet import PoolStatus, ReplicaStatus, choose
from antiphon.inference.mailbox import Mailbox
from antiphon.inference.shell import ReplicaShell
from antiphon.inference.supervisor import SupervisedReplica, SupervisorState
from antiphon.inference.wire import (
    Cancel,
    FailedFrame,
    FinishedFrame,
    LogFormat,
    PrefillFrame,
    SequenceFrame,
    SetBand,
    StartFailure,
    Submit,
    TokensFrame,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PoolRuntime:
    """A configured pool, ready to be started. ``tokenizer`` gives the pool's tokenizer, and may block while it is being read."""

    spec: PoolSpec
    replica: ReplicaSpec
    tokenizer: Callable[[], Tokenizer]


@dataclass(slots=True, eq=False)
class Ticket:
    """One accepted request, from its arrival in the pool to its last event."""

    request: EngineRequest
    entered_at: float
    mailbox: Mailbox = field(default_factory=Mailbox)
    replica: ReplicaShell[Ticket] | None = None
    handle: int = 0
    queued_s: float = 0.0
    position: int = 0
    last_token_at: float | None = None
    read_tokens: int = 0
    ended: bool = False

    @property
    def output_tokens(self) -> int:
        return self.request.sampling.max_tokens

    @property
    def peak_tokens(self) -> int:
        return len(self.request.prompt_ids) + self.output_tokens


class Pool:
    """Everything about one pool that changes. Lives in one event loop."""

    def __init__(self, runtime: PoolRuntime, clock: Clock, telemetry: Telemetry, on_change: Callable[[], None]) -> None:
        self.runtime = runtime
        self._clock = clock
        self._telemetry = telemetry
        self._on_change = on_change
        self._line: WaitingLine[Ticket] = WaitingLine(runtime.spec.queue_limit)
        self._drain = DrainMeter()
        self._shells: list[ReplicaShell[Ticket]] = []
        self._handles = 0
        self._turn = 0
        self._context_tokens = 0

    @property
    def name(self) -> str:
        return self.runtime.spec.name

    def start(self, context: zmq.Context[zmq.Socket[bytes]], runtime_dir: Path, first_number: int, log_format: LogFormat) -> None:
        """Start every replica; sockets are numbered from ``first_number``."""
        for index in range(self.runtime.spec.replicas):
            replica = SupervisedReplica(f"{self.name}-{index}", first_number + index, self.runtime.replica, runtime_dir, log_format)
            shell = ReplicaShell[Ticket](self, replica, context, self._clock, self._telemetry)
            self._shells.append(shell)
            shell.supervisor.start()

    async def close(self) -> None:
        """Stop every replica; requests still here fail."""
        await asyncio.gather(*(shell.supervisor.close() for shell in self._shells))
        for ticket in list(self._line):
            self._line.leave(ticket)
            self._fail(ticket, EngineFailed("The server is shutting down."))

    # --- what others ask ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return any(shell.supervisor.state is SupervisorState.READY for shell in self._shells)

    @property
    def failure(self) -> StartFailure | None:
        """Why no replica could be started, when all have tried and failed."""
        failures = [shell.supervisor.failure for shell in self._shells]
        return failures[0] if failures and all(failures) else None

    def status(self) -> PoolStatus:
        view = self._view(Band.STANDARD, 1)
        states = {shell.supervisor.state for shell in self._shells}
        loading = states & {SupervisorState.LOADING, SupervisorState.RESTARTING}
        wait_s = view.opening_s if not self.ready else (view.ahead + (not view.fits_now)) * (view.seconds_each or 0.0)
        return PoolStatus(
            name=self.name,
            model=self.runtime.spec.model,
            status="ready" if self.ready else ("loading" if loading else "down"),
            load="full" if view.full or not self.ready else ("high" if view.waiting or not view.fits_now else "normal"),
            wait_ms=round(1000 * wait_s),
            context_tokens=self._context_tokens,
        )

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(shell.status() for shell in self._shells)

    def waiting(self) -> dict[Band, int]:
        """Requests in the line, by band."""
        return {band: self._line.waiting(band) for band in sorted(Band, reverse=True)}

    def decide(self, peak_tokens: int, band: Band) -> Decision:
        """For a newcomer that needs ``peak_tokens``; changes nothing."""
        return decide(self._view(band, peak_tokens))

    # --- a request ----------------------------------------------------------------------------

    def enter(self, request: EngineRequest) -> Ticket:
        """Take an accepted request; ``leave`` must follow."""
        ticket = Ticket(request, self._clock.monotonic())
        self._line.enter(ticket, request.band)
        self.pump()
        return ticket

    async def next_event(self, ticket: Ticket, deadline: float) -> EngineEvent | Queued:
        """The ticket's next event. Raises ``EngineFailed``, and ``QueueTimeout`` at ``deadline`` (the loop's time) without a replica."""
        while True:
            limit = asyncio.timeout_at(deadline if ticket.replica is None else None)
            try:
                async with limit:
                    event = await ticket.mailbox.get()
            except TimeoutError:
                if ticket.replica is None and not ticket.ended:
                    raise QueueTimeout("No model became free in time.") from None
                continue
            if isinstance(event, Tokens):
                ticket.read_tokens += len(event.token_ids)
            return event

    def leave(self, ticket: Ticket) -> None:
        """The reader has gone: a request that has not ended is cancelled, its blocks free after the current step."""
        if ticket.ended:
            return
        if self._line.leave(ticket):
            ticket.ended = True
            self._drain.update(self._clock.monotonic(), waiting=bool(self._line), departed=False)
            self._say_positions()
        elif ticket.replica is not None:
            ticket.replica.send(Cancel(ticket.handle))

    def cancel(self, ticket: Ticket) -> None:
        """Stop a request whose reader stays: its events end with a ``Finished`` that says ``cancelled`` and what it cost."""
        if ticket.replica is None and not ticket.ended:
            self.leave(ticket)
            queued_ms = round(1000 * (self._clock.monotonic() - ticket.entered_at))
            already = len(ticket.request.already_ids)
            usage = EngineUsage(len(ticket.request.prompt_ids), 0, already, queued_ms, 0, 0, 0)
            ticket.mailbox.put(Finished(FinishReason.CANCELLED, usage))
        else:
            self.leave(ticket)

    def set_band(self, ticket: Ticket, band: Band) -> None:
        """Let a request wait, and be computed, as one of ``band``; last in that band's line."""
        if ticket.ended or ticket.request.band is band:
            return
        ticket.request = replace(ticket.request, band=band)
        if ticket.replica is not None:
            ticket.replica.send(SetBand(ticket.handle, band))
        elif self._line.leave(ticket):
            self._line.enter(ticket, band)
            self.pump()

    # --- dispatch -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Send whom the replicas can take, in the line's order; nobody overtakes the first."""
        now = self._clock.monotonic()
        while (ticket := self._line.first) is not None:
            index = choose(self._shells, ticket.peak_tokens, self._turn, ticket.output_tokens)
            if index is None or not self._dispatch(ticket, self._shells[index], now):
                break
            self._turn = (index + 1) % len(self._shells)
        self._drain.update(now, waiting=bool(self._line), departed=False)
        self._say_positions()

    def _dispatch(self, ticket: Ticket, shell: ReplicaShell[Ticket], now: float) -> bool:
        handle = self._handles + 1
        try:
            shell.supervisor.send(Submit(handle, ticket.request))
        except EngineFailed:
            return False
        self._handles = handle
        self._line.leave(ticket)
        self._drain.update(now, waiting=bool(self._line), departed=ticket.position > 0)
        ticket.replica, ticket.handle, ticket.queued_s = shell, handle, now - ticket.entered_at
        shell.took(handle, ticket)
        shell.ledger.dispatched(handle, ticket.peak_tokens, ticket.output_tokens)
        self._telemetry.observe(metrics.QUEUE_SECONDS, ticket.queued_s, self.name, ticket.request.band.name.lower())
        return True

    def _say_positions(self) -> None:
        """Tell those in the line their place, when it has changed."""
        each = self._drain.seconds_each(self._clock.monotonic())
        for position, ticket in enumerate(self._line, start=1):
            if ticket.position != position:
                ticket.position = position
                ticket.mailbox.put(Queued(position, eta_ms(position, each)))
        for band, waiting in self.waiting().items():
            self._telemetry.gauge(metrics.REQUESTS_WAITING, waiting, self.name, band.name.lower())

    def _view(self, band: Band, peak_tokens: int) -> PoolView:
        now = self._clock.monotonic()
        states = {shell.supervisor.state for shell in self._shells}
        return PoolView(
            waiting=len(self._line),
            ahead=self._line.ahead_of(band),
            full=self._line.full,
            fits_now=choose(self._shells, peak_tokens, 0) is not None,
            available=bool(states & {SupervisorState.READY, SupervisorState.RESTARTING}),
            seconds_each=self._drain.seconds_each(now),
            standing_s=self._drain.standing_s(now),
            opening_s=min((shell.supervisor.expected_wait_s() for shell in self._shells), default=0.0),
        )

    # --- what replicas say (``ReplicaOwner``) ---------------------------------------------------

    def on_state_changed(self, context_tokens: int | None) -> None:
        """A replica has become ready, with this context, or has ended."""
        if context_tokens is not None:
            self._context_tokens = context_tokens
        self.pump()
        self._on_change()

    def on_capacity(self) -> None:
        if self._line:
            self.pump()

    def on_frame(self, ticket: Ticket, frame: SequenceFrame) -> bool:
        """Pass on what a replica did for a request; ``True`` when that was its end."""
        match frame:
            case TokensFrame():
                self._token_gap(ticket)
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
        ticket.ended = True
        reason, usage = FinishReason(frame.reason), frame.usage
        computed = usage.output_tokens - len(ticket.request.already_ids)
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
        ticket.ended = True
        ticket.mailbox.fail(failure)
