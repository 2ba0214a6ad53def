"""What a limiter that forgets with its process is told at a start, so that a restart gives nobody a fresh allowance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from antiphon.core.allowance import Customer, Serving, limits_of
from antiphon.core.clock import Clock, to_ms
from antiphon.core.generation import Generation
from antiphon.core.ids import GenerationId, TenantId, UserId
from antiphon.core.limits import Budget, Outcome, Reservation, TenantTerms
from antiphon.core.money import month_of
from antiphon.core.plans import Plan
from antiphon.core.usage import Purpose, UsageRecord
from antiphon.stores.limits.base import Spent
from antiphon.stores.usage.base import Ledger, TotalsQuestion

_DEBTS_LAST = timedelta(hours=1)
"""Nobody owes tokens for longer: a plan's largest answer is far less than an hour of its rate."""


class Recall:
    """Reads the ledger with the eyes of the limits that hold now."""

    def __init__(self, plans: Mapping[str, Plan], terms: Callable[[TenantId, UserId], TenantTerms], clock: Clock) -> None:
        self._plans = plans
        self._terms = terms
        self._clock = clock

    async def spent(self, ledger: Ledger) -> tuple[Spent, ...]:
        """All that limits may still feel: rates of the last hour, caps within their windows, the month's money."""
        now = self._clock.now()
        longest = max((cap.window_seconds for plan in self._plans.values() for cap in plan.caps), default=0)
        records = await ledger.recent(since=now - max(_DEBTS_LAST, timedelta(seconds=longest)))
        money = await ledger.totals(TotalsQuestion(now.replace(day=1), now + timedelta(days=1), ("tenant",)))
        month, ends = month_of(now)
        budget = Budget("tenant", month, 0, to_ms(ends) - to_ms(now))
        months = [
            Outcome(TenantId(total.group["tenant"]), GenerationId(f"spent in {month}"), 0, total.cost_nanos, (budget,)) for total in money
        ]
        answers = (record for record in records if record.purpose is Purpose.ANSWER)
        return (*(self._spent(record, now) for record in answers), *(Spent(outcome, 0) for outcome in months))

    def held(self, generations: Sequence[Generation]) -> tuple[Reservation, ...]:
        """What turns hold that were accepted and had not ended when the server did: their answers' most."""
        now = self._clock.now()
        found: list[Reservation] = []
        for one in generations:
            plan = self._plan(one.plan)
            most = plan.max_output_tokens if one.params.max_tokens is None else one.params.max_tokens
            customer = Customer(one.tenant_id, one.user_id, one.key_id, plan)
            limits = limits_of(customer, Serving(one.pool, one.model), self._terms(one.tenant_id, one.user_id), now)
            found.append(Reservation(one.tenant_id, one.id, most, 0, limits))
        return tuple(found)

    def _spent(self, record: UsageRecord, now: datetime) -> Spent:
        """A record's money is in the month's."""
        customer = Customer(record.tenant_id, record.user_id, record.key_id, self._plan(record.plan))
        limits = limits_of(customer, Serving(record.pool, record.model), self._terms(record.tenant_id, record.user_id), now)
        counts = record.finish_reason is not None or record.usage.output_tokens > 0
        tokens = record.usage.prompt_tokens + record.usage.output_tokens if counts else 0
        outcome = Outcome(record.tenant_id, record.generation_id, tokens, 0, limits, counts)
        return Spent(outcome, max(0, to_ms(now) - to_ms(record.finished_at)))

    def _plan(self, name: str) -> Plan:
        return self._plans.get(name) or Plan(name)
