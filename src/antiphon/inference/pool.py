"""One pool: its replicas, the line before them, and the requests under way. An async shell around ``PoolPolicy``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog
import zmq

from antiphon.core import telemetry as metrics
from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed
from antiphon.core.events import Queued
from antiphon.core.generation import FinishReason
from antiphon.core.telemetry import Telemetry
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, Prefilling, Tokens
from antiphon.inference.admission import Look
from antiphon.inference.ask import Ask
from antiphon.inference.availability import Availability
from antiphon.inference.fleet import PoolStatus, ReplicaStatus, ServedPool
from antiphon.inference.line_news import LineNews
from antiphon.inference.pool_policy import PoolPolicy, PoolRules
from antiphon.inference.pool_replicas import PoolReplicas, PoolRuntime
from antiphon.inference.prefix_cache import prompt_fingerprints
from antiphon.inference.residency import AlwaysResident, Need, Presence, Residence
from antiphon.inference.stickiness import Stickiness
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
    TokensFrame,
)

log = structlog.get_logger(__name__)

_UNCLAIMED_S = 15.0
"""A place that was taken at Accept and whose request never came is given up."""
_OPENED_S = 30.0
"""So long after a model was loaded those that waited for it go on waiting beyond their deadlines."""
_WANTED_S = 1.0
_LATE = "No model became free in time."
_NOT_LOADED = "The model could not be loaded. Whoever runs this server can see why."  # not why: that may name folders and addresses


class Pool:
    """Everything about one pool that changes. Lives in one event loop."""

    def __init__(self, runtime: PoolRuntime, clock: Clock, telemetry: Telemetry, on_change: Callable[[], None]) -> None:
        self.runtime = runtime
        self._clock = clock
        self._telemetry = telemetry
        self._on_change = on_change
        rules = PoolRules(runtime.spec.name, runtime.spec.model, runtime.spec.queue_limit, fair=runtime.replica.order == "fair")
        self._replicas = PoolReplicas(runtime, self, clock, telemetry)
        self._policy: PoolPolicy[int] = PoolPolicy(rules, self._replicas.ledgers, clock.monotonic())
        self._tickets: dict[int, Ticket] = {}
        self._news = LineNews(runtime.spec.name, self._policy, self._tickets, self._opening_s, telemetry)
        self._reserved: dict[str, Ticket] = {}
        self._numbers = 0
        self._paused = False
        self._wanted_until = -math.inf
        self.residence: Residence = AlwaysResident()
        self.sticky = Stickiness()
        self.shed_count = 0
        self.downgrade_count = 0

    @property
    def name(self) -> str:
        return self.runtime.spec.name

    def start(self, context: zmq.Context[zmq.Socket[bytes]], runtime_dir: Path, first_number: int, log_format: LogFormat) -> None:
        """Start every replica; sockets are numbered from ``first_number``. Again after ``unload``."""
        self._paused = False
        self._replicas.start(context, runtime_dir, first_number, log_format)

    async def close(self, reason: str = "The server is shutting down.") -> None:
        """Stop every replica; requests still here fail with ``reason``."""
        for ticket in list(self._tickets.values()):
            self._policy.leave(ticket.number, self._clock.monotonic())
            self._fail(ticket, EngineFailed(reason))
        self._news.count()
        await self._replicas.stop()

    # --- its model's place in memory ------------------------------------------------------------

    def need(self) -> Need:
        """What there is to do here."""
        people = sum(self._policy.waiting(band) for band in Band if band is not Band.BATCH)
        people = people or int(self._clock.monotonic() < self._wanted_until)
        background, emptied_s = self._policy.waiting(Band.BATCH), self._policy.emptied_s()
        return Need(self._policy.running_count, people, background, self._replicas.hopeless, emptied_s)

    def want(self) -> None:
        """Somebody is going to ask it something, and has to know the model first."""
        self._wanted_until = self._clock.monotonic() + _WANTED_S
        self.residence.changed()

    def behind(self) -> Queued:
        """Where one would stand that came now and found no model there."""
        opening_s = self._availability(self._clock.monotonic()).opening_s
        return Queued(self._policy.waiting_count + 1, round(1000 * opening_s), starting=True)

    def waits_on(self, ticket: Ticket) -> bool:
        """Whether it may wait beyond its deadline: its model is being loaded, or it has waited for that until a moment ago."""
        opened = ticket.entered_at < self._replicas.ready_at and self._clock.monotonic() - self._replicas.ready_at < _OPENED_S
        return opened or self.residence.presence(self.name) is Presence.LOADING

    @property
    def loading(self) -> bool:
        """Whether its model is on its way into memory, and nobody can be served before."""
        return self.residence.presence(self.name) is Presence.LOADING or (self._replicas.loading and not self.ready)

    def pause(self) -> None:
        """Begin nothing new; what runs goes on."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.pump()

    async def unload(self) -> None:
        """Stop every replica of a pool that is paused; those that wait here go on waiting."""
        await self._replicas.stop()

    # --- what others ask ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self._replicas.ready

    @property
    def settled(self) -> bool:
        """Whether a start need not wait for this pool: it is ready or loaded on demand, or its server is somebody else's and not there."""
        unneeded = self.runtime.spec.engine == "openai" if self.failure else self.residence.presence(self.name) is Presence.ABSENT
        return self.ready or unneeded

    @property
    def failure(self) -> StartFailure | None:
        """Why no replica could be started, when all have tried and failed."""
        return self._replicas.failure

    @property
    def why_late(self) -> str:
        """What to tell somebody whom it did not serve in time."""
        return _LATE if self.ready or self._replicas.trouble is None else _NOT_LOADED

    @property
    def served(self) -> ServedPool:
        return ServedPool(self.name, self.runtime.spec.model, self._replicas.context_tokens, release=self._replicas.release)

    def status(self, band: Band = Band.STANDARD) -> PoolStatus:
        """The pool as one who would wait in ``band`` sees it."""
        now, trouble = self._clock.monotonic(), self._replicas.trouble
        availability, presence = self._availability(now), self.residence.presence(self.name)
        away = availability.on_demand
        serves = self.ready and not away
        busy = self._policy.high or self._policy.waiting_count > 0 or away
        usable = serves or (away and availability.available)
        loading = not serves and (self._replicas.loading if presence is Presence.RESIDENT else presence is Presence.LOADING)
        return PoolStatus(
            name=self.name,
            model=self.runtime.spec.model,
            status="loading" if loading else ("ready" if usable else "down"),
            load="full" if not usable or self._policy.refuses(now) else ("high" if busy else "normal"),
            wait_ms=round(1000 * (self._policy.band_wait_s(band, now) if serves else availability.opening_s)),
            context_tokens=self._replicas.context_tokens,
            release=self._replicas.release,
            presence=presence,
            loading=self._replicas.progress if loading else None,
            trouble=None if trouble is None else trouble.error,
        )

    @property
    def usual_load_s(self) -> float | None:
        """How long its model took to load the last time."""
        return self._replicas.usual_load_s

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return self._replicas.statuses()

    def waiting(self) -> dict[Band, int]:
        """Requests in the line, by band."""
        return self._news.waiting()

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
        return ticket and self._news.place(ticket, self._clock.monotonic())

    def enter(self, request: EngineRequest, ask: Ask) -> Ticket:
        """Take an accepted request, on its reserved place if it has one; ``leave`` must follow."""
        ticket = self._reserved.pop(request.request_id, None)
        if ticket is None:
            ticket = self._new_ticket(ask, ready=True, look=self.look(ask))
        ticket.ask, ticket.request = ask, request
        fingerprints = prompt_fingerprints(request.prompt_ids, request.tenant_id, request.public_prefix_tokens)
        self._policy.attach(ticket.number, ask, fingerprints)
        self.pump()
        told = self._news.place(ticket, self._clock.monotonic())
        if told is not None:
            ticket.mailbox.put(told)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The reader has gone: a request that has not ended is cancelled, its blocks free after the current step."""
        if ticket.ended:
            return
        now = self._clock.monotonic()
        if self._policy.leave(ticket.number, now):
            self._end(ticket)
            self._news.tell(now)
        elif ticket.replica is not None:
            ticket.replica.send(Cancel(ticket.handle))

    def cancel(self, ticket: Ticket) -> None:
        """Stop a request whose reader stays: its events end with a ``Finished`` that says ``cancelled`` and what it cost."""
        waited = ticket.replica is None and not ticket.ended
        self.leave(ticket)
        if waited and ticket.request is not None:
            ticket.mailbox.put(ticket.cancelled(self._clock.monotonic()))

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
        if not self._policy.waiting_count or self._paused:
            return
        now = self._clock.monotonic()
        sent = False
        while (chosen := self._policy.next(now)) is not None:
            number, index = chosen
            if not self._dispatch(self._tickets[number], index, now):
                break
            sent = True
        if sent:
            self._news.tell(now)

    def tick(self) -> None:
        """Once a second: tell those that wait where they stand, give up places that nobody came for, try what was broken."""
        now = self._clock.monotonic()
        for request_id, ticket in list(self._reserved.items()):
            if self.ready and now - max(ticket.entered_at, self._replicas.ready_at) > _UNCLAIMED_S:
                log.warning("place_unclaimed", pool=self.name, request=request_id)
                self.withdraw(request_id)
        if not self._paused:
            self._replicas.probe(now)
        self.pump()
        self._policy.feel(now)
        self._news.tell(now, everybody=True)

    def _dispatch(self, ticket: Ticket, index: int, now: float) -> bool:
        try:
            handle = self._replicas.send(index, ticket)
        except EngineFailed:
            return False
        self._policy.started(ticket.number, index, handle, now)
        ticket.queued_s = now - ticket.entered_at
        self._telemetry.observe(metrics.QUEUE_SECONDS, ticket.queued_s, self.name, ticket.ask.band.name.lower())
        return True

    def _new_ticket(self, ask: Ask, *, ready: bool, look: Look) -> Ticket:
        now = self._clock.monotonic()
        self._numbers += 1
        ticket = self._tickets[self._numbers] = Ticket(ask, now, self._numbers)
        self._policy.enter(self._numbers, ask, now, ready=ready, look=look)
        self._news.count()
        self.residence.changed()
        return ticket

    def _end(self, ticket: Ticket) -> None:
        ticket.ended = True
        self._tickets.pop(ticket.number, None)
        self.residence.changed()

    def _opening_s(self) -> float | None:
        """How long until those that wait are served, one after the other; ``None`` where they are."""
        return None if self.ready and not self._paused else self._availability(self._clock.monotonic()).opening_s

    def _availability(self, now: float) -> Availability:
        if self.residence.presence(self.name) is not Presence.RESIDENT:
            return Availability(self.residence.loadable(self.name), self.residence.opening_s(self.name), on_demand=True)
        return self._replicas.availability(now)

    # --- what replicas say (``ReplicaOwner``) ---------------------------------------------------

    def on_state_changed(self, ready: ReplicaReady | None) -> None:
        """A replica has become ready, or has ended."""
        if ready is not None:
            self._replicas.note_ready(ready)
            self.residence.loaded(self.name, self._replicas.load_s)
        self.pump()
        self._on_change()

    def on_capacity(self) -> None:
        self.pump()

    def on_frame(self, ticket: Ticket, frame: SequenceFrame) -> bool:
        """Pass on what a replica did for a request; ``True`` when that was its end."""
        match frame:
            case TokensFrame():
                gap_s = ticket.token_gap_s(self._clock.monotonic())
                if gap_s is not None:
                    self._telemetry.observe(metrics.ITL, gap_s, self.name)
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
        self._fail(ticket, EngineFailed("The engine stopped while it was writing this answer."))

    def _finish(self, ticket: Ticket, frame: FinishedFrame) -> None:
        reason, usage = FinishReason(frame.reason), frame.usage
        if ticket.replica is not None and reason is not FinishReason.CANCELLED:
            ticket.replica.ledger.breaker.succeeded()
        if ticket.probe or ticket.request is None:
            self._end(ticket)
            return
        cut = None if reason is FinishReason.CANCELLED else reason is FinishReason.LENGTH
        computed, cached = usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens
        self._policy.ended(ticket.number, cut=cut, computed_tokens=computed, cached_tokens=cached)
        self._end(ticket)
        ticket.mailbox.put(ticket.finished(frame, self.name, self._telemetry))

    def _fail(self, ticket: Ticket, failure: EngineFailed) -> None:
        self._policy.ended(ticket.number)
        self._end(ticket)
        ticket.mailbox.fail(failure)
