"""What a turn may use: held before it is accepted, reconciled when it has ended, told to whoever asks.

A refusal names the limit that keeps the caller waiting longest, what remains of it and when it returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

import structlog

from antiphon.core.abuse import Unwatched, Watch
from antiphon.core.allowance import Customer, Serving, limits_of
from antiphon.core.clock import Clock
from antiphon.core.errors import AntiphonError, ConcurrencyLimited, Limited, QuotaExhausted, RateLimited
from antiphon.core.generation import Generation, GenerationStatus, Usage
from antiphon.core.ids import GenerationId, TenantId, UserId
from antiphon.core.limits import (
    Budget,
    Cap,
    Concurrency,
    Exhausted,
    Limit,
    Outcome,
    Rate,
    Reservation,
    Standing,
    TenantTerms,
)
from antiphon.core.money import PriceList, nanos_of, of_nanos
from antiphon.core.plans import Plan
from antiphon.core.usage import Purpose, UsageRecord
from antiphon.inference.output_length import OutputLengths
from antiphon.stores.limits.base import REMEMBERED_MS, Limiter

log = structlog.get_logger(__name__)

_SETTLED_AGAIN = timedelta(milliseconds=REMEMBERED_MS * 0.8)
"""Limiters remember a little longer which generations were charged."""


def no_terms(_tenant_id: TenantId, _user_id: UserId) -> TenantTerms:
    """Nothing holds for a tenant as a whole, and nobody is throttled."""
    return TenantTerms()


@dataclass(slots=True)
class Allowances:
    """``terms`` tells what a tenant's contract is now. ``expects_most``: an answer is reserved at its maximum, not at what is likely."""

    limiter: Limiter
    clock: Clock
    prices: PriceList = field(default_factory=PriceList)
    terms: Callable[[TenantId, UserId], TenantTerms] = no_terms
    expects_most: bool = False
    watch: Watch = field(default_factory=Unwatched)
    _lengths: dict[str, OutputLengths] = field(default_factory=dict[str, OutputLengths])

    async def reserve(
        self, customer: Customer, serving: Serving, generation_id: GenerationId, *, prompt_tokens: int, most_output_tokens: int
    ) -> Sequence[Standing]:
        """Hold what the turn will probably use, or all that it may; returns where the caller stands with it.

        Raises ``RateLimited``, ``QuotaExhausted`` or ``ConcurrencyLimited``, with nothing held; ``StoreUnavailable``.
        """
        output_tokens = most_output_tokens
        if not self.expects_most:
            output_tokens = self._lengths_of(serving.pool).expect(0, most_output_tokens)
        now = self.clock.now()
        price = self.prices.at(serving.pool, serving.model, now)
        cost = None if price is None else price.of_tokens(prompt_tokens, 0, output_tokens)
        terms = self.terms(customer.tenant_id, customer.user_id)
        limits = limits_of(customer, serving, terms, now)
        reservation = Reservation(customer.tenant_id, generation_id, prompt_tokens + output_tokens, nanos_of(cost), limits)
        verdict = await self.limiter.reserve(reservation)
        if isinstance(verdict, Exhausted):
            raise refusal_of(verdict, slowed=terms.throttle > 1)
        return verdict.standings

    async def release(self, customer: Customer, generation_id: GenerationId) -> None:
        """Give back what is held for a turn that was not accepted after all. Raises nothing."""
        await self._told(lambda: self.limiter.release(customer.tenant_id, generation_id), generation_id)

    async def renew(self, tenant_id: TenantId, generation_id: GenerationId) -> None:
        """Keep what is held for a turn that is being written. Raises nothing."""
        await self._told(lambda: self.limiter.renew(tenant_id, generation_id), generation_id)

    async def settle(self, customer: Customer, serving: Serving, ended: Ended) -> None:
        """Charge what was used by a generation that has ended, once; the rest comes back. Raises nothing: the relay tries again."""
        self.watch.ran(customer, ended.at, ended.usage.prefill_ms + ended.usage.decode_ms)
        if ended.status is GenerationStatus.COMPLETE:
            self._lengths_of(serving.pool).observe(ended.usage.output_tokens)
        limits = limits_of(customer, serving, self.terms(customer.tenant_id, customer.user_id), ended.at)
        outcome = outcome_of(customer.tenant_id, ended, limits)
        await self._told(lambda: self.limiter.reconcile(outcome), ended.generation_id)

    async def charge(self, customer: Customer, serving: Serving, ended: Ended) -> None:
        """Charge budgets, and nothing else, with work that nobody waited for. Raises nothing: the relay tries again."""
        terms = self.terms(customer.tenant_id, customer.user_id)
        budgets = tuple(limit for limit in limits_of(customer, serving, terms, ended.at) if isinstance(limit, Budget))
        if budgets:
            await self._told(lambda: self.limiter.reconcile(outcome_of(customer.tenant_id, ended, budgets)), ended.generation_id)

    async def settle_again(self, record: UsageRecord, plan: Plan) -> None:
        """Charge what a record tells, in case nobody did when its generation ended. Old ones were, or are forgotten by now."""
        if self.clock.now() - record.finished_at > _SETTLED_AGAIN:
            return
        customer = Customer(record.tenant_id, record.user_id, record.key_id, plan)
        status = GenerationStatus.FAILED if record.finish_reason is None else GenerationStatus.CANCELLED
        ended = Ended(record.generation_id, status, record.usage, record.finished_at)
        charge = self.settle if record.purpose is Purpose.ANSWER else self.charge
        await charge(customer, Serving(record.pool, record.model), ended)

    async def standings(self, customer: Customer, servings: tuple[Serving, ...]) -> tuple[Standing, ...]:
        """Where the caller stands with every limit that holds for them, caps of any of ``servings`` included."""
        now, terms = self.clock.now(), self.terms(customer.tenant_id, customer.user_id)
        limits = dict.fromkeys(limit for serving in servings for limit in limits_of(customer, serving, terms, now))
        return await self.limiter.standings(customer.tenant_id, tuple(limits))

    def cost(self, serving: Serving, ended: Ended) -> Decimal | None:
        """What the caller pays for a generation; ``None`` where the price is unknown."""
        price = self.prices.cost(serving.pool, serving.model, ended.usage, ended.at)
        return price if price is None or ended.counts else Decimal(0)

    async def _told(self, act: Callable[[], Awaitable[bool]], generation_id: GenerationId) -> None:
        try:
            await act()
        except AntiphonError as error:
            log.warning("limits_not_told", generation_id=generation_id, error=type(error).__name__)

    def _lengths_of(self, pool: str) -> OutputLengths:
        return self._lengths.setdefault(pool, OutputLengths())


@dataclass(frozen=True, slots=True)
class Ended:
    """How a generation ended, as far as limits care."""

    generation_id: GenerationId
    status: GenerationStatus
    usage: Usage
    at: datetime

    @property
    def counts(self) -> bool:
        """Whether it is a request and a message: not so one that failed without a token."""
        return self.status is not GenerationStatus.FAILED or self.usage.output_tokens > 0


def customer_of(generation: Generation, plan: Plan) -> Customer:
    return Customer(generation.tenant_id, generation.user_id, generation.key_id, plan)


def outcome_of(tenant_id: TenantId, ended: Ended, limits: tuple[Limit, ...]) -> Outcome:
    """What the limiter is told; a turn that failed without a token counts for nothing."""
    usage = ended.usage
    tokens = usage.prompt_tokens + usage.output_tokens if ended.counts else 0
    return Outcome(tenant_id, ended.generation_id, tokens, nanos_of(usage.cost) if ended.counts else 0, limits, ended.counts)


def refusal_of(verdict: Exhausted, *, slowed: bool = False) -> Limited:
    """The error that tells which limit, what remains of it and when it returns. ``slowed``: the account has less than its plan."""
    limit, wait_ms = verdict.limit, verdict.retry_in_ms
    at = next(standing for standing in verdict.standings if standing.limit == limit)
    whose = {"user": "Your account, which is slowed for now," if slowed else "Your plan", "key": "This key"}.get(
        limit.subject.partition(":")[0], "Your organisation"
    )
    match limit:
        case Rate():
            text = f"{whose} allows {limit.per_minute} {limit.measure} per minute; {at.remaining} remain now."
            return RateLimited(text, retry_after_ms=wait_ms, standings=verdict.standings)
        case Concurrency():
            text = f"{whose} allows {_count(limit.most, 'answer')} at a time, and {at.used} are being written."
            return ConcurrencyLimited(text, retry_after_ms=wait_ms, standings=verdict.standings)
        case Cap():
            text = (
                f"{whose} allows {_count(limit.most, 'message')} with {limit.model} in {_span(limit.window_ms)}; {at.remaining} remain now."
            )
            return QuotaExhausted(text, retry_after_ms=wait_ms, standings=verdict.standings)
        case Budget():
            text = f"{whose} has spent its budget of {_amount(limit.most_nanos)} for {limit.period}."
            return QuotaExhausted(text, retry_after_ms=wait_ms, standings=verdict.standings)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _span(milliseconds: int) -> str:
    minutes = milliseconds / 60_000
    return f"{minutes / 60:g} h" if minutes >= 60 else f"{minutes:g} min"


def _amount(nanos: int) -> Decimal:
    return of_nanos(nanos)
