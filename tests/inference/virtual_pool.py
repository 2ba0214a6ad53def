"""A pool in virtual time: the production policies before an engine that is only counted. Deterministic from its seed."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from antiphon.core.tenancy import Band
from antiphon.engines.base import ExecutorShape
from antiphon.inference.admission import Admit, Queue, Shed, decide
from antiphon.inference.ask import Ask
from antiphon.inference.fleet import ReplicaLedger
from antiphon.inference.pool_policy import PoolPolicy, PoolRules
from antiphon.inference.wire import ReplicaReady, ReplicaSnapshot

BLOCK = 32


@dataclass(frozen=True, slots=True)
class Machine:
    """What the counted engine can do; ``waiting`` may wait there for their first step. ``step_ms``: for a step, a row, a token
    of prefill.
    """

    blocks: int = 256
    rows: int = 64
    waiting: int = 8
    step_ms: tuple[float, float, float] = (20.0, 0.0, 0.05)


@dataclass(slots=True, eq=False)
class Turn:
    """One request's fate, in virtual seconds."""

    number: int
    ask: Ask
    length: int
    cancel_after_s: float | None = None
    arrived_s: float = 0.0
    decision: Admit | Queue | Shed | None = None
    first_eta_s: float | None = None
    positions: list[int] = field(default_factory=list[int])
    above_at_told: int = 0
    started_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    cancelled: bool = False
    written: int = 0

    @property
    def tokens(self) -> int:
        return self.ask.prompt_tokens + self.length

    @property
    def met(self) -> bool:
        return self.first_token_s is not None and self.first_token_s - self.arrived_s <= self.ask.wait_limit_s


class CountedEngine:
    """Continuous batching in steps: takes what is submitted while it fits, prefill first, a token for each row each step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.waiting: deque[tuple[int, Turn]] = deque()
        self.running: dict[int, Turn] = {}
        self.held: dict[int, int] = {}
        self.last_handle = 0

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def step(self) -> tuple[float, list[Turn], list[tuple[int, Turn]]]:
        """Seconds it takes, whose first token it brings, and who ends with it."""
        base, per_row, per_prefill = self.machine.step_ms
        firsts: list[Turn] = []
        prefill = 0
        while self.waiting and len(self.running) < self.machine.rows:
            handle, turn = self.waiting[0]
            need = -(-turn.tokens // BLOCK)
            if need > self.machine.blocks - sum(self.held.values()) and self.running:
                break
            self.waiting.popleft()
            self.running[handle], self.held[handle] = turn, need
            prefill += turn.ask.prompt_tokens
            firsts.append(turn)
        ended: list[tuple[int, Turn]] = []
        for handle, turn in self.running.items():
            turn.written += 1
            if turn.written >= turn.length:
                ended.append((handle, turn))
        seconds = (base + per_row * len(self.running) + per_prefill * prefill) / 1000
        for handle, _ in ended:
            self.drop(handle)
        return seconds, firsts, ended

    def drop(self, handle: int) -> bool:
        if self.running.pop(handle, None) is not None:
            del self.held[handle]
            return True
        return False

    def snapshot(self) -> ReplicaSnapshot:
        held = sum(self.held.values())
        waiting = sum(-(-turn.tokens // BLOCK) for _, turn in self.waiting)
        return ReplicaSnapshot(
            running=len(self.running),
            waiting=len(self.waiting),
            free=self.machine.blocks - held,
            held=held,
            cached=0,
            unpromised=self.machine.blocks - held - waiting,
            last_handle=self.last_handle,
            prefill_tokens=sum(turn.ask.prompt_tokens for _, turn in self.waiting),
            step_ms=(*self.machine.step_ms, 0.0, 0.0),
        )


class VirtualPool:
    """Plays arrivals through ``PoolPolicy``. ``turns`` must come in order of ``arrived_s``."""

    def __init__(self, machine: Machine, *, queue_limit: int = 200, fair: bool = True, check_every: int = 0, refuses: bool = True) -> None:
        self.now = 0.0
        self.engine = CountedEngine(machine)
        self.ledger = ReplicaLedger()
        shape = ExecutorShape(machine.blocks, BLOCK, machine.blocks * BLOCK, 1000, frozenset())
        self.ledger.open(ReplicaReady(1, shape, machine.blocks * BLOCK, machine.rows, machine.waiting))
        self.ledger.observe(self.engine.snapshot(), 0.0)
        self.policy: PoolPolicy[int] = PoolPolicy(PoolRules("pool", "model", queue_limit, fair), [self.ledger], 0.0)
        self.open: dict[int, Turn] = {}
        self.handles: dict[int, int] = {}
        self._handle = 0
        self._step_ends = 0.0
        self._tell_at = 0.0
        self._step: tuple[list[Turn], list[tuple[int, Turn]]] | None = None
        self._check_every = check_every
        self._refuses = refuses
        self._came = dict.fromkeys(Band, 0)
        self._events = 0
        self._cancels: list[tuple[float, int]] = []
        self.faults: list[str] = []

    def run(self, turns: Iterable[Turn], *, until_s: float = float("inf")) -> None:
        arrivals = deque(turns)
        while arrivals or self.open:
            self.now = max(min(self._times(arrivals)), self.now)
            if self.now > until_s:
                return
            if self._step is not None and self._step_ends <= self.now:
                self._finish_step()
            while self._cancels and self._cancels[0][0] <= self.now:
                self._cancel(heapq.heappop(self._cancels)[1])
            while arrivals and arrivals[0].arrived_s <= self.now:
                self._arrive(arrivals.popleft())
            self._go_on()
            self._events += 1
            if self._check_every and self._events % self._check_every == 0:
                self.check()

    def _times(self, arrivals: deque[Turn]) -> list[float]:
        """When something happens next."""
        times = [self._step_ends if self._step is not None else float("inf")]
        if arrivals:
            times.append(arrivals[0].arrived_s)
        if self._cancels:
            times.append(self._cancels[0][0])
        if self.policy.waiting_count:
            times.append(self._tell_at)
        return times

    def check(self) -> None:
        self.policy.check()
        assert sum(self.engine.held.values()) <= self.engine.machine.blocks
        assert self.policy.running_count == len(self.engine.running) + len(self.engine.waiting) + (
            len(self._step[1]) if self._step is not None else 0
        )
        assert len(self.open) == self.policy.waiting_count + self.policy.running_count

    # --- inside ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Tell, dispatch, and begin a step, as is due."""
        if self.policy.waiting_count and self._tell_at <= self.now:
            self._tell()
            self._tell_at = self.now + 1.0
        self._dispatch()
        if self._step is None and not self.engine.idle:
            seconds, firsts, ended = self.engine.step()
            self._step, self._step_ends = (firsts, ended), self.now + seconds

    def _arrive(self, turn: Turn) -> None:
        turn.arrived_s = max(turn.arrived_s, 0.0)
        look = self.policy.look(turn.ask, self.now)
        retry = 1.0
        decision = decide(turn.ask, look, None, sticky=False)
        if isinstance(decision, Shed) and not self._refuses:
            decision = Queue(look.position, None)
        if isinstance(decision, Shed):
            retry = self.policy.retry_after_s(turn.ask, look, self.now, str(turn.number))
            decision = Shed(decision.code, round(1000 * retry))
        assert isinstance(decision, Admit | Queue | Shed)
        turn.decision = decision
        if isinstance(decision, Shed):
            return
        self._came[turn.ask.band] += 1
        self.policy.enter(turn.number, turn.ask, self.now, look=look)
        self.open[turn.number] = turn
        if turn.cancel_after_s is not None:
            heapq.heappush(self._cancels, (self.now + turn.cancel_after_s, turn.number))
        if isinstance(decision, Queue) and decision.eta_ms is not None:
            turn.positions.append(decision.position)
            turn.above_at_told, turn.first_eta_s = self._above(turn), decision.eta_ms / 1000

    def _tell(self) -> None:
        for standing in self.policy.standings(self.now):
            turn = self.open[standing.key]
            above = self._above(turn)
            if turn.positions and standing.position > turn.positions[-1] + above - turn.above_at_told:
                self.faults.append(f"position of {turn.number} rose without a higher band")
            turn.positions.append(standing.position)
            turn.above_at_told = above

    def _above(self, turn: Turn) -> int:
        """How many of higher bands have been let in."""
        return sum(count for band, count in self._came.items() if band > turn.ask.band)

    def _dispatch(self) -> None:
        while (chosen := self.policy.next(self.now)) is not None:
            key, replica = chosen
            self._handle += 1
            turn = self.open[key]
            self.policy.started(key, replica, self._handle, self.now)
            turn.started_s = self.now
            self.handles[key] = self._handle
            self.engine.waiting.append((self._handle, turn))
            self.engine.last_handle = self._handle

    def _finish_step(self) -> None:
        assert self._step is not None
        firsts, ended = self._step
        self._step = None
        for turn in firsts:
            if turn.first_token_s is None:
                turn.first_token_s = self.now
        for turn in self.engine.running.values():
            self.policy.progressed(turn.number, 1)
        for _, turn in ended:
            if turn.number in self.open:
                self.policy.progressed(turn.number, 1)
                self._end(turn, cut=turn.length >= turn.ask.output_tokens)
        self.ledger.observe(self.engine.snapshot(), self.now)

    def _end(self, turn: Turn, *, cut: bool | None) -> None:
        turn.ended_s = self.now
        del self.open[turn.number]
        self.policy.ended(turn.number, cut=cut, computed_tokens=turn.ask.prompt_tokens if turn.written else 0)

    def _cancel(self, number: int) -> None:
        turn = self.open.get(number)
        if turn is None:
            return
        turn.cancelled = True
        if self.policy.leave(number, self.now):
            turn.ended_s = self.now
            del self.open[number]
            return
        handle = self.handles[number]
        if self._step is not None and any(ended is turn for _, ended in self._step[1]):
            return
        if not self.engine.drop(handle):
            self.engine.waiting = deque(item for item in self.engine.waiting if item[0] != handle)
        self._end(turn, cut=None)


@dataclass(frozen=True, slots=True)
class PlanLoad:
    """Requests of one plan: ``share`` of all, each waiting at most ``limit_s``."""

    share: float
    band: Band
    limit_s: float
    tenants: int = 100


THREE_PLANS = (
    PlanLoad(0.2, Band.HIGH, 1.5),
    PlanLoad(0.3, Band.STANDARD, 3.0),
    PlanLoad(0.5, Band.LOW, 10.0),
)


def poisson_turns(
    rate: float, seconds: float, seed: int, *, plans: tuple[PlanLoad, ...] = THREE_PLANS, cancels: float = 0.0, mean_tokens: int = 64
) -> list[Turn]:
    """Arrivals at random, open loop."""
    rng = random.Random(seed)
    turns: list[Turn] = []
    at = 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        plan = rng.choices(plans, [one.share for one in plans])[0]
        length = max(1, min(round(rng.expovariate(1 / mean_tokens)), 4 * mean_tokens))
        ask = Ask(
            tenant=f"{plan.band.name}-{rng.randrange(plan.tenants)}",
            user=f"user-{rng.randrange(200)}",
            prompt_tokens=rng.randrange(20, 200),
            output_tokens=4 * mean_tokens,
            band=plan.band,
            wait_limit_s=plan.limit_s,
        )
        cancel = rng.uniform(0.0, 4.0) if rng.random() < cancels else None
        turns.append(Turn(len(turns), ask, length, cancel, at))
    return turns
