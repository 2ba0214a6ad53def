"""One tenant's limits, as a pure machine in the driver's time: the oracle of every driver, and the memory driver's inside.

A rate is kept as a debt in parts of 1/60,000, so that a millisecond repays ``per_minute`` parts and all arithmetic is whole. A
debt that is repaid is nothing, so who rests costs no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from antiphon.core.ids import GenerationId
from antiphon.core.limits import Budget, Cap, Concurrency, Exhausted, Granted, Limit, Measure, Outcome, Rate, Reservation, Standing, Verdict
from antiphon.stores.limits.base import ASK_AGAIN_MS, HOLD_MS, REMEMBERED_MS

PARTS = 60_000
_EXPIRED_AT_ONCE = 32

DebtKey = tuple[str, Measure]
CapKey = tuple[str, str, int]


@dataclass(slots=True)
class _Debt:
    parts: int
    at_ms: int
    per_minute: int


@dataclass(slots=True)
class _Held:
    """A reservation, with what it has put where."""

    tokens: int
    cost_nanos: int
    limits: tuple[Limit, ...]
    since_ms: int
    until_ms: int


@dataclass(slots=True)
class Tally:
    """``now_ms`` never falls from call to call; a driver whose clock may be set back sees to that."""

    _debts: dict[DebtKey, _Debt] = field(default_factory=dict[DebtKey, _Debt])
    _running: Counter[str] = field(default_factory=Counter[str])
    _messages: dict[CapKey, dict[GenerationId, int]] = field(default_factory=dict[CapKey, dict[GenerationId, int]])
    _money: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    _held: dict[GenerationId, _Held] = field(default_factory=dict[GenerationId, _Held])
    _settled: dict[GenerationId, int] = field(default_factory=dict[GenerationId, int])

    # --- the port's steps ---------------------------------------------------------------------

    def reserve(self, reservation: Reservation, now_ms: int) -> Verdict:
        """See ``Limiter.reserve``."""
        self._expire(now_ms)
        if reservation.generation_id in self._held or self._is_settled(reservation.generation_id, now_ms):
            return Granted(self._standings(reservation.limits, now_ms))
        waits = [self._wait_ms(limit, reservation, now_ms) for limit in reservation.limits]
        longest = max(waits, default=0)
        if longest > 0:
            return Exhausted(reservation.limits[waits.index(longest)], longest, self._standings(reservation.limits, now_ms))
        self.hold(reservation, now_ms)
        return Granted(self._standings(reservation.limits, now_ms))

    def hold(self, reservation: Reservation, now_ms: int) -> None:
        """Hold what is granted already; nothing for a generation that is known."""
        if reservation.generation_id in self._held or self._is_settled(reservation.generation_id, now_ms):
            return
        held = _Held(reservation.tokens, reservation.cost_nanos, reservation.limits, now_ms, now_ms + HOLD_MS)
        self._held[reservation.generation_id] = held
        for limit in reservation.limits:
            self._put(limit, reservation.generation_id, held, now_ms)

    def renew(self, generation_id: GenerationId, now_ms: int) -> bool:
        """See ``Limiter.renew``."""
        self._expire(now_ms)
        held = self._held.pop(generation_id, None)
        if held is None:
            return False
        held.until_ms = now_ms + HOLD_MS
        self._held[generation_id] = held  # at the end: the dictionary stays in the order in which reservations expire
        return True

    def reconcile(self, outcome: Outcome, now_ms: int) -> bool:
        """See ``Limiter.reconcile``."""
        self._expire(now_ms)
        if self._is_settled(outcome.generation_id, now_ms):
            return False
        held = self._held.pop(outcome.generation_id, None)
        self._settle(outcome, held, now_ms if held is None else held.since_ms, now_ms)
        return True

    def release(self, generation_id: GenerationId, now_ms: int) -> bool:
        """See ``Limiter.release``."""
        self._expire(now_ms)
        held = self._held.pop(generation_id, None)
        if held is not None:
            self._give_back(generation_id, held, now_ms)
        return held is not None

    def standings(self, limits: Sequence[Limit], now_ms: int) -> tuple[Standing, ...]:
        """See ``Limiter.standings``."""
        self._expire(now_ms)
        return self._standings(limits, now_ms)

    def idle(self, now_ms: int) -> bool:
        """Whether forgetting this tenant would change no answer."""
        self._expire(now_ms)
        self._settled = {generation: until for generation, until in self._settled.items() if until > now_ms}
        self._messages = {key: kept for key, kept in self._messages.items() if self._within(key, now_ms)}
        self._debts = {key: debt for key, debt in self._debts.items() if self._debt_now(key, debt.per_minute, now_ms)}
        return not (self._settled or self._messages or self._debts or self._held or self._money)

    def check(self) -> None:
        """Raises ``AssertionError`` where the parts contradict each other."""
        assert all(debt.parts >= 0 for debt in self._debts.values())
        assert all(spent >= 0 for spent in self._money.values())
        held = Counter(limit.subject for held in self._held.values() for limit in held.limits if isinstance(limit, Concurrency))
        assert +self._running == held
        for generation_id in self._held:
            assert generation_id not in self._settled or self._settled[generation_id] < self._held[generation_id].since_ms

    # --- inside -------------------------------------------------------------------------------

    def _settle(self, outcome: Outcome, held: _Held | None, since_ms: int, now_ms: int) -> None:
        """Replace what is held by what was used, in one step: what has been repaid meanwhile stays repaid."""
        owed: dict[DebtKey, tuple[Rate, int]] = {}
        spent: dict[tuple[str, str], int] = {}
        if held is not None:
            self._withdraw(outcome.generation_id, held, owed, spent)
        for limit in outcome.limits:
            match limit:
                case Rate():
                    amount = outcome.tokens if limit.measure is Measure.TOKENS else int(outcome.counts)
                    owed[_debt_key(limit)] = (limit, owed.get(_debt_key(limit), (limit, 0))[1] + amount)
                case Cap() if outcome.counts and since_ms > now_ms - limit.window_ms:
                    self._messages.setdefault(_cap_key(limit), {})[outcome.generation_id] = since_ms
                case Budget():
                    spent[limit.subject, limit.period] = spent.get((limit.subject, limit.period), 0) + outcome.cost_nanos
                case _:
                    pass
        self._book(owed, spent, now_ms)
        self._settled[outcome.generation_id] = now_ms + REMEMBERED_MS

    def _withdraw(
        self, generation_id: GenerationId, held: _Held, owed: dict[DebtKey, tuple[Rate, int]], spent: dict[tuple[str, str], int]
    ) -> None:
        """Take back what is held; what that changes in debts and money is added to ``owed`` and ``spent``."""
        for limit in held.limits:
            match limit:
                case Rate():
                    owed[_debt_key(limit)] = (limit, -(1 if limit.measure is Measure.REQUESTS else held.tokens))
                case Concurrency():
                    self._running[limit.subject] -= 1
                    if not self._running[limit.subject]:
                        del self._running[limit.subject]
                case Cap():
                    self._messages.get(_cap_key(limit), {}).pop(generation_id, None)
                case Budget():
                    spent[limit.subject, limit.period] = -held.cost_nanos

    def _book(self, owed: dict[DebtKey, tuple[Rate, int]], spent: dict[tuple[str, str], int], now_ms: int) -> None:
        for limit, amount in owed.values():
            if amount:
                self._owe(limit, amount * PARTS, now_ms)
        for key, nanos in spent.items():
            self._money[key] = max(0, self._money.get(key, 0) + nanos)

    def _give_back(self, generation_id: GenerationId, held: _Held, now_ms: int) -> None:
        owed: dict[DebtKey, tuple[Rate, int]] = {}
        spent: dict[tuple[str, str], int] = {}
        self._withdraw(generation_id, held, owed, spent)
        self._book(owed, spent, now_ms)

    def _expire(self, now_ms: int) -> None:
        """Give back what dead servers held, the longest dead first, some at each step; forget the oldest settled ones."""
        due = [(held.until_ms, generation) for generation, held in takewhile(lambda item: item[1].until_ms <= now_ms, self._held.items())]
        for _, generation_id in sorted(due)[:_EXPIRED_AT_ONCE]:
            self._give_back(generation_id, self._held.pop(generation_id), now_ms)
        for generation_id in [generation for generation, _ in takewhile(lambda item: item[1] <= now_ms, self._settled.items())]:
            del self._settled[generation_id]

    def _is_settled(self, generation_id: GenerationId, now_ms: int) -> bool:
        return self._settled.get(generation_id, now_ms) > now_ms

    def _wait_ms(self, limit: Limit, asked: Reservation, now_ms: int) -> int:
        """Until ``limit`` would grant what is asked for; 0: now."""
        match limit:
            case Rate():
                amount = min(1 if limit.measure is Measure.REQUESTS else asked.tokens, limit.per_minute)
                over = self._debt_now(_debt_key(limit), limit.per_minute, now_ms) - (limit.per_minute - amount) * PARTS
                return -(-over // limit.per_minute) if over > 0 else 0
            case Concurrency():
                return ASK_AGAIN_MS if self._running[limit.subject] >= limit.most else 0
            case Cap():
                times = sorted(self._within(_cap_key(limit), now_ms).values())
                if limit.most == 0:
                    return limit.window_ms
                return times[-limit.most] + limit.window_ms - now_ms if len(times) >= limit.most else 0
            case Budget():
                spent = self._spent(limit)
                over = spent >= limit.most_nanos or spent + asked.cost_nanos > limit.most_nanos
                return max(1, limit.left_ms) if over else 0

    def _put(self, limit: Limit, generation_id: GenerationId, held: _Held, now_ms: int) -> None:
        match limit:
            case Rate():
                self._owe(limit, (1 if limit.measure is Measure.REQUESTS else held.tokens) * PARTS, now_ms)
            case Concurrency():
                self._running[limit.subject] += 1
            case Cap():
                self._messages[_cap_key(limit)] = {**self._within(_cap_key(limit), now_ms), generation_id: now_ms}
            case Budget():
                self._money[limit.subject, limit.period] = self._spent(limit) + held.cost_nanos

    def _owe(self, limit: Rate, parts: int, now_ms: int) -> None:
        key = _debt_key(limit)
        parts = max(0, self._debt_now(key, limit.per_minute, now_ms) + parts)
        if parts:
            self._debts[key] = _Debt(parts, now_ms, limit.per_minute)
        else:
            self._debts.pop(key, None)

    def _debt_now(self, key: DebtKey, per_minute: int, now_ms: int) -> int:
        debt = self._debts.get(key)
        return 0 if debt is None else max(0, debt.parts - (now_ms - debt.at_ms) * per_minute)

    def _within(self, key: CapKey, now_ms: int) -> dict[GenerationId, int]:
        since = now_ms - key[2]
        return {generation: at for generation, at in self._messages.get(key, {}).items() if at > since}

    def _spent(self, limit: Budget) -> int:
        return self._money.get((limit.subject, limit.period), 0)

    def _standings(self, limits: Sequence[Limit], now_ms: int) -> tuple[Standing, ...]:
        return tuple(self._standing(limit, now_ms) for limit in limits)

    def _standing(self, limit: Limit, now_ms: int) -> Standing:
        match limit:
            case Rate():
                parts = self._debt_now(_debt_key(limit), limit.per_minute, now_ms)
                return Standing(limit, -(-parts // PARTS), -(-parts // limit.per_minute))
            case Concurrency():
                return Standing(limit, self._running[limit.subject], 0)
            case Cap():
                times = self._within(_cap_key(limit), now_ms).values()
                return Standing(limit, len(times), min(times) + limit.window_ms - now_ms if times else 0)
            case Budget():
                return Standing(limit, self._spent(limit), limit.left_ms)


def _debt_key(limit: Rate) -> DebtKey:
    return limit.subject, limit.measure


def _cap_key(limit: Cap) -> CapKey:
    return limit.subject, limit.model, limit.window_ms
