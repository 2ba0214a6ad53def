"""One replica as its pool holds it: the process, what is known of it, and the requests it has."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar

import zmq

from antiphon.core import telemetry as metrics
from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed
from antiphon.core.telemetry import Telemetry
from antiphon.inference.availability import ReplicaOutlook
from antiphon.inference.fleet import RateMeter, ReplicaLedger, ReplicaStatus
from antiphon.inference.supervisor import SupervisedReplica, Supervisor, SupervisorState
from antiphon.inference.wire import Command, ReplicaReady, ReplicaSnapshot, SequenceFrame, StepFrame, StepTimes, TokensFrame

_AT_ONCE = 4

TicketT = TypeVar("TicketT")
_T_contra = TypeVar("_T_contra", contravariant=True)


class ReplicaOwner(Protocol[_T_contra]):
    """The pool, as its replicas see it."""

    @property
    def name(self) -> str: ...

    def on_state_changed(self, ready: ReplicaReady | None) -> None: ...

    def on_capacity(self) -> None: ...

    def on_frame(self, ticket: _T_contra, frame: SequenceFrame) -> bool: ...

    def on_lost(self, ticket: _T_contra) -> None: ...


class ReplicaShell(Generic[TicketT]):
    """Implements ``ReplicaListener``. Exactly the requests that are here are told when the process ends."""

    def __init__(
        self,
        owner: ReplicaOwner[TicketT],
        replica: SupervisedReplica,
        ledger: ReplicaLedger,
        context: zmq.Context[zmq.Socket[bytes]],
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._telemetry = telemetry
        self._labels = (owner.name, replica.replica_id)
        self._tickets: dict[int, TicketT] = {}
        self._said: deque[SequenceFrame] = deque()
        """Of the last step, not handed on yet."""
        self._going_on = False
        self._rate = RateMeter(clock.monotonic())
        self._preemptions = self._recomputed = 0
        self.replica_id = replica.replica_id
        self.ledger = ledger
        self.supervisor = Supervisor(replica, context, self, clock)

    @property
    def busy(self) -> bool:
        return bool(self._tickets)

    def took(self, handle: int, ticket: TicketT) -> None:
        """A request was sent here."""
        self._tickets[handle] = ticket

    def send(self, command: Command) -> None:
        """Send what may be lost with the process."""
        try:
            self.supervisor.send(command)
        except EngineFailed:
            return

    def outlook(self) -> ReplicaOutlook:
        state = self.supervisor.state
        worked = state in {SupervisorState.READY, SupervisorState.RESTARTING}
        return ReplicaOutlook(worked, 0.0 if state is SupervisorState.READY else self.supervisor.expected_wait_s(), self.ledger)

    def status(self) -> ReplicaStatus:
        snapshot = self.ledger.snapshot
        return ReplicaStatus(
            id=self.replica_id,
            pid=self.supervisor.pid,
            state=self.supervisor.state.value,
            running=snapshot.running if snapshot else 0,
            waiting=self.ledger.load - snapshot.running if snapshot else 0,  # those too that it has not spoken of yet
            free_blocks=snapshot.free if snapshot else 0,
            held_blocks=snapshot.held if snapshot else 0,
            cached_blocks=snapshot.cached if snapshot else 0,
            tok_s=round(self._rate.rate(self._clock.monotonic()), 1),
            circuit=self.ledger.breaker.state(self._clock.monotonic()).value,
        )

    def on_ready(self, ready: ReplicaReady) -> None:
        self.ledger.open(ready)
        self._preemptions = self._recomputed = 0
        self._owner.on_state_changed(ready)

    def on_step(self, frame: StepFrame) -> None:
        tokens = sum(len(sequence.token_ids) for sequence in frame.sequences if isinstance(sequence, TokensFrame))
        self.ledger.observe(frame.snapshot, self._clock.monotonic(), frame.cached, frame.dropped, tokens=tokens)
        self._hand_on(len(self._said))
        self._said.extend(frame.sequences)
        self._go_on()
        self._report(frame, tokens)
        self._owner.on_capacity()

    def _go_on(self) -> None:
        """Hand on a few, first tokens before all others, and the rest when the loop has written those and has looked at its sockets:
        a step's tokens for a hundred readers at once would keep the first waiting for the last, and whoever asks meanwhile for all.
        """
        self._hand_on(_AT_ONCE)
        if self._said and not self._going_on:
            self._going_on = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._going_on = False
        self._go_on()

    def _hand_on(self, most: int) -> None:
        for _ in range(min(most, len(self._said))):
            sequence = self._said.popleft()
            ticket = self._tickets.get(sequence.handle)
            if ticket is not None and self._owner.on_frame(ticket, sequence):
                del self._tickets[sequence.handle]

    def on_exit(self) -> None:
        self._hand_on(len(self._said))
        if self.ledger.ready is not None and self.supervisor.state is not SupervisorState.STOPPED:
            self.ledger.breaker.failed(self._clock.monotonic())
        self.ledger.close()
        lost, self._tickets = self._tickets, {}
        for ticket in lost.values():
            self._owner.on_lost(ticket)
        self._report_gauges(0, 0, 0, 0)
        self._owner.on_state_changed(None)

    def _report(self, frame: StepFrame, tokens: int) -> None:
        if tokens:
            self._rate.add(tokens, self._clock.monotonic())
        snapshot = frame.snapshot
        self._report_gauges(snapshot.running, snapshot.free, snapshot.held, snapshot.cached)
        self._report_losses(snapshot)
        if frame.times is not None:
            self._report_times(frame.times)

    def _report_gauges(self, running: int, free: int, held: int, cached: int) -> None:
        gauge = self._telemetry.gauge
        gauge(metrics.REQUESTS_RUNNING, running, *self._labels)
        for state, blocks in (("free", free), ("held", held), ("cached", cached)):
            gauge(metrics.KV_BLOCKS, blocks, *self._labels, state)

    def _report_losses(self, snapshot: ReplicaSnapshot) -> None:
        """The snapshot counts from the process's start."""
        preemptions, recomputed = snapshot.preemptions - self._preemptions, snapshot.recomputed_tokens - self._recomputed
        self._preemptions, self._recomputed = snapshot.preemptions, snapshot.recomputed_tokens
        if preemptions:
            self._telemetry.count(metrics.PREEMPTIONS, preemptions, *self._labels)
        if recomputed:
            self._telemetry.count(metrics.WASTED_TOKENS, recomputed, self._labels[0])

    def _report_times(self, times: StepTimes) -> None:
        self._telemetry.count(metrics.ACCELERATOR_SECONDS, times.infer_s, *self._labels)
        parts = (("plan", times.plan_s), ("infer", times.infer_s), ("sample", times.sample_s), ("emit", times.emit_s))
        for part, seconds in parts:
            self._telemetry.observe(metrics.STEP_SECONDS, seconds, *self._labels, part)
