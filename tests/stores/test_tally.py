"""The machine inside every limiter, against a model that keeps everything and computes each answer from the start."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Exhausted, Granted, Limit, Measure, Outcome, Rate, Reservation
from antiphon.stores.limits.base import HOLD_MS
from antiphon.stores.limits.tally import Tally

TENANT = TenantId("tenant_1")
TOKENS = Rate("user:u1", Measure.TOKENS, 600)
REQUESTS = Rate("user:u1", Measure.REQUESTS, 30)
RUNNING = Concurrency("user:u1", 3)
CAP = Cap("user:u1", "large", 4, 50_000)
MONEY = Budget("tenant", "2026-01", 5_000, 1_000_000)
LIMITS: tuple[Limit, ...] = (TOKENS, REQUESTS, RUNNING, CAP, MONEY)
BIGGEST = 500

names = st.integers(0, 12).map(lambda number: GenerationId(f"gen_{number}"))
amounts = st.integers(0, BIGGEST)
several = st.lists(st.sampled_from(LIMITS), unique=True, max_size=5).map(tuple)


@dataclass
class Life:
    """One generation, in full."""

    tokens: int
    cost: int
    limits: tuple[Limit, ...]
    since: int
    until: int
    outcome: Outcome | None = None


class Limits(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()
        self.now = 0
        self.lives: dict[GenerationId, Life] = {}
        self.settled: dict[GenerationId, Life] = {}

    @rule(milliseconds=st.sampled_from((1, 40, 999, 5_000, HOLD_MS - 1, HOLD_MS, 70_000)))
    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.tally.standings((), self.now)
        self.lives = {name: life for name, life in self.lives.items() if life.until > self.now}

    @rule(name=names, tokens=amounts, cost=amounts, limits=several)
    def reserve(self, name: GenerationId, tokens: int, cost: int, limits: tuple[Limit, ...]) -> None:
        before = self.tally.standings(LIMITS, self.now)
        fits = all(self._fits(limit, tokens, cost) for limit in limits)
        verdict = self.tally.reserve(Reservation(TENANT, name, tokens, cost, limits), self.now)
        if name in self.lives or name in self.settled:
            assert isinstance(verdict, Granted)
            assert self.tally.standings(LIMITS, self.now) == before
            return
        assert isinstance(verdict, Granted) == fits
        if isinstance(verdict, Exhausted):
            assert self.tally.standings(LIMITS, self.now) == before
            assert verdict.limit in limits
            assert verdict.retry_in_ms > 0
        else:
            self.lives[name] = Life(tokens, cost, limits, self.now, self.now + HOLD_MS)

    def _fits(self, limit: Limit, tokens: int, cost: int) -> bool:
        match limit:
            case Concurrency():
                return self._running() < limit.most
            case Cap():
                return self._messages() < limit.most
            case Budget():
                return self._money() + cost <= limit.most_nanos and self._money() < limit.most_nanos
            case Rate():
                amount = tokens if limit.measure is Measure.TOKENS else 1
                return self._debt_parts(limit) + min(amount, limit.per_minute) * 60_000 <= limit.per_minute * 60_000

    def _debt_parts(self, limit: Rate) -> int:
        debt = self.tally._debts.get((limit.subject, limit.measure))
        return 0 if debt is None else max(0, debt.parts - (self.now - debt.at_ms) * limit.per_minute)

    def _running(self) -> int:
        return sum(RUNNING in life.limits for life in self.lives.values())

    def _messages(self) -> int:
        held = sum(CAP in life.limits and life.since > self.now - CAP.window_ms for life in self.lives.values())
        kept = [life for life in self.settled.values() if life.outcome and life.outcome.counts and CAP in life.outcome.limits]
        return held + sum(life.since > self.now - CAP.window_ms for life in kept)

    def _money(self) -> int:
        held = sum(life.cost for life in self.lives.values() if MONEY in life.limits)
        kept = [life.outcome for life in self.settled.values() if life.outcome and MONEY in life.outcome.limits]
        return held + sum(outcome.cost_nanos for outcome in kept)

    @rule(name=names, tokens=amounts, cost=amounts, limits=several, counts=st.booleans())
    def reconcile(self, name: GenerationId, tokens: int, cost: int, limits: tuple[Limit, ...], counts: bool) -> None:
        outcome = Outcome(TENANT, name, tokens, cost, limits, counts)
        assert self.tally.reconcile(outcome, self.now) == (name not in self.settled)
        if name not in self.settled:
            life = self.lives.pop(name, None) or Life(0, 0, (), self.now, self.now)
            life.outcome = outcome
            self.settled[name] = life

    @rule(name=names)
    def release(self, name: GenerationId) -> None:
        assert self.tally.release(name, self.now) == (name in self.lives)
        self.lives.pop(name, None)

    @rule(name=names)
    def renew(self, name: GenerationId) -> None:
        assert self.tally.renew(name, self.now) == (name in self.lives)
        if name in self.lives:
            self.lives[name].until = self.now + HOLD_MS

    @invariant()
    def nothing_contradicts(self) -> None:
        self.tally.check()
        if len(self.settled) > 10:  # as if an hour had passed: names come again
            self.tally, self.lives, self.settled = Tally(), {}, {}

    @invariant()
    def the_standings_are_those_of_the_whole_history(self) -> None:
        tokens, requests, running, cap, money = self.tally.standings(LIMITS, self.now)
        assert running.used == self._running()
        assert cap.used == self._messages()
        assert money.used == self._money()
        assert tokens.used >= 0
        assert requests.used >= 0


TestLimits = Limits.TestCase
TestLimits.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_no_window_holds_more_than_a_minutes_tokens_what_flowed_back_and_one_reservation() -> None:
    """Greedy callers over ten minutes, each asking as soon as it may."""
    tally, now, let_in = Tally(), 0, []
    while now < 600_000:
        verdict = tally.reserve(Reservation(TENANT, GenerationId(f"gen_{now}"), 250, 0, (TOKENS,)), now)
        if isinstance(verdict, Granted):
            let_in.append((now, 250))
            tally.reconcile(Outcome(TENANT, GenerationId(f"gen_{now}"), 250, 0, (TOKENS,)), now)
            now += 1
        else:
            now += verdict.retry_in_ms
    for begin, _ in let_in:
        for end in (at for at, _ in let_in if at >= begin):
            inside = sum(tokens for at, tokens in let_in if begin <= at <= end)
            assert inside <= 600 + (end - begin) * 600 / 60_000 + 250
    assert sum(tokens for _, tokens in let_in) >= 600 * 10
