"""The replicas of one pool: started, stopped, asked, and what is known of them together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zmq

from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed
from antiphon.core.generation import Sampling
from antiphon.core.ids import TenantId
from antiphon.core.pools import PoolSpec
from antiphon.core.telemetry import Telemetry
from antiphon.engines.base import SILENCE_S, EngineRequest, ReplicaSpec, Tokenizer
from antiphon.inference.ask import Ask
from antiphon.inference.availability import Availability, availability_of
from antiphon.inference.fleet import LoadProgress, ReplicaLedger, ReplicaStatus
from antiphon.inference.load_limit import LOAD_LIMIT, LoadLimit
from antiphon.inference.shell import ReplicaOwner, ReplicaShell
from antiphon.inference.supervisor import STALL_S, SupervisedReplica, SupervisorState
from antiphon.inference.ticket import Ticket
from antiphon.inference.wire import LogFormat, ReplicaReady, StartFailure, Submit

_OUTSIDE_STALL_S = SILENCE_S + 30.0
"""The engine for a server that is not ours gives up one silent answer by itself; its process is killed only where it doesn't."""


@dataclass(frozen=True, slots=True)
class PoolRuntime:
    """A configured pool, ready to be started. ``tokenizer`` gives the pool's tokenizer, and may block while it is being read."""

    spec: PoolSpec
    replica: ReplicaSpec
    tokenizer: Callable[[], Tokenizer]
    usual_load_s: float | None = None
    """How long a replica took to load in an earlier process; ``None`` where none did."""
    load_limit: LoadLimit = LOAD_LIMIT


class PoolReplicas:
    """All or none of them are there. ``ledgers`` outlive the processes."""

    def __init__(self, runtime: PoolRuntime, owner: ReplicaOwner[Ticket], clock: Clock, telemetry: Telemetry) -> None:
        self._runtime = runtime
        self._owner = owner
        self._clock = clock
        self._telemetry = telemetry
        self._shells: list[ReplicaShell[Ticket]] = []
        self._handles = 0
        self._failure: StartFailure | None = None
        self.ledgers = [ReplicaLedger(runtime.spec.stream_tokens_per_s) for _ in range(runtime.spec.replicas)]
        self.ready_at = -math.inf
        """When one became ready last."""
        self.usual_load_s = runtime.usual_load_s
        """How long the last load took, in this process or an earlier one."""
        self.context_tokens = 0
        self.release = ""

    def start(self, context: zmq.Context[zmq.Socket[bytes]], runtime_dir: Path, first_number: int, log_format: LogFormat) -> None:
        """Start every replica; sockets are numbered from ``first_number``. Again after ``stop``."""
        assert not self._shells
        for index, ledger in enumerate(self.ledgers):
            name = f"{self._owner.name}-{index}"
            stall_s = _OUTSIDE_STALL_S if self._runtime.spec.engine == "openai" else STALL_S
            replica = SupervisedReplica(
                name,
                first_number + index,
                self._runtime.replica,
                runtime_dir,
                log_format,
                stall_s=stall_s,
                usual_load_s=self.usual_load_s,
                load_limit=self._runtime.load_limit,
            )
            shell = ReplicaShell[Ticket](self._owner, replica, ledger, context, self._clock, self._telemetry)
            self._shells.append(shell)
            shell.supervisor.start()

    async def stop(self) -> None:
        """End every replica's process; requests there fail."""
        self._failure = self.failure
        shells, self._shells = self._shells, []
        await asyncio.gather(*(shell.supervisor.close() for shell in shells))

    @property
    def ready(self) -> bool:
        return any(shell.supervisor.state is SupervisorState.READY for shell in self._shells)

    @property
    def loading(self) -> bool:
        """Whether one is being started."""
        return self.progress is not None

    @property
    def progress(self) -> LoadProgress | None:
        """How far the one is that has been starting longest; ``None`` where none is being started."""
        starting = {SupervisorState.LOADING, SupervisorState.RESTARTING}
        elapsed = [shell.supervisor.starting_s() for shell in self._shells if shell.supervisor.state in starting]
        if not elapsed:
            return None
        return LoadProgress(round(1000 * max(elapsed)), None if self.usual_load_s is None else round(1000 * self.usual_load_s))

    @property
    def failure(self) -> StartFailure | None:
        """Why none could be started, when all have tried and failed; also when they were stopped then."""
        failures = [shell.supervisor.failure for shell in self._shells]
        return failures[0] if failures and all(failures) else self._failure

    @property
    def trouble(self) -> StartFailure | None:
        """Why one is not ready whose last start went wrong; of all of them, once they were stopped for that."""
        return next(filter(None, (shell.supervisor.trouble for shell in self._shells)), self._failure)

    @property
    def hopeless(self) -> bool:
        """Whether no replica is going to be ready, however long it is waited for."""
        return bool(self._shells) and all(shell.supervisor.hopeless for shell in self._shells)

    @property
    def load_s(self) -> float:
        """How long the last start took."""
        return max((shell.supervisor.load_s or 0.0 for shell in self._shells), default=0.0)

    def note_ready(self, ready: ReplicaReady) -> None:
        """One has become ready."""
        self.context_tokens, self.release = ready.context_tokens, ready.release
        self._failure, self.ready_at = None, self._clock.monotonic()
        self.usual_load_s = self.load_s

    def statuses(self) -> tuple[ReplicaStatus, ...]:
        return tuple(shell.status() for shell in self._shells)

    def availability(self, now: float) -> Availability:
        return availability_of([shell.outlook() for shell in self._shells], now)

    def send(self, index: int, ticket: Ticket) -> int:
        """Give a ticket's request to a replica; returns its handle there. Raises ``EngineFailed`` where no process would take it."""
        assert ticket.request is not None, "only one that is ready is sent"
        shell = self._shells[index]
        shell.supervisor.send(Submit(self._handles + 1, ticket.request))
        self._handles += 1
        ticket.replica, ticket.handle = shell, self._handles
        shell.took(self._handles, ticket)
        return self._handles

    def probe(self, now: float) -> None:
        """Ask those that failed for one token: their answers say whether they may be trusted again."""
        for index, (shell, ledger) in enumerate(zip(self._shells, self.ledgers, strict=False)):
            if shell.supervisor.state is SupervisorState.READY and ledger.breaker.wants_probe(now):
                request = EngineRequest("probe", TenantId("probe"), (0,), Sampling(max_tokens=1, temperature=0.0), ignore_end_of_turn=True)
                try:
                    self.send(index, Ticket(Ask("probe", "", 1, 1), now, 0, request, probe=True))
                except EngineFailed:
                    continue
                ledger.breaker.probed()
