"""Which limits a turn is under. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from antiphon.core.clock import to_ms
from antiphon.core.ids import KeyId, TenantId, UserId
from antiphon.core.limits import Budget, Cap, Concurrency, Limit, Measure, Rate, TenantTerms
from antiphon.core.money import month_of, nanos_of
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Principal


@dataclass(frozen=True, slots=True)
class Customer:
    """Whose allowance it is."""

    tenant_id: TenantId
    user_id: UserId
    key_id: KeyId | None
    plan: Plan

    @staticmethod
    def of(principal: Principal, plan: Plan) -> Customer:
        return Customer(principal.tenant_id, principal.user_id, principal.key_id, plan)


@dataclass(frozen=True, slots=True)
class Serving:
    """Which pool serves which model."""

    pool: str
    model: str


def limits_of(customer: Customer, serving: Serving, terms: TenantTerms, now: datetime) -> tuple[Limit, ...]:
    """Every limit that a turn of ``customer`` served by ``serving`` is under: the user's, the key's, the tenant's."""
    plan, user = customer.plan, f"user:{customer.user_id}"
    throttle = terms.throttle
    limits: list[Limit] = [
        Rate(user, Measure.TOKENS, max(1, plan.tokens_per_minute // throttle)),
        Rate(user, Measure.REQUESTS, max(1, plan.requests_per_minute // throttle)),
        Concurrency(user, max(1, plan.concurrency // throttle)),
    ]
    limits += [
        Cap(user, cap.model, cap.messages, cap.window_seconds * 1000) for cap in plan.caps if cap.model in {serving.pool, serving.model}
    ]
    if customer.key_id is not None:
        key = f"key:{customer.key_id}"
        limits += _rates(key, plan.key_tokens_per_minute, plan.key_requests_per_minute)
    limits += _rates("tenant", terms.tokens_per_minute, terms.requests_per_minute)
    if terms.monthly_budget is not None:
        period, ends = month_of(now)
        limits.append(Budget("tenant", period, nanos_of(terms.monthly_budget), to_ms(ends) - to_ms(now)))
    return tuple(limits)


def _rates(subject: str, tokens_per_minute: int, requests_per_minute: int) -> list[Limit]:
    """0 is no limit."""
    pairs = ((Measure.TOKENS, tokens_per_minute), (Measure.REQUESTS, requests_per_minute))
    return [Rate(subject, measure, most) for measure, most in pairs if most > 0]
