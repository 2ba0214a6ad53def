"""What holds for each tenant now: read from the ledger every few seconds, told to whoever limits. Alerts of budgets are set off here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import structlog

from antiphon.core.clock import Clock
from antiphon.core.errors import DiskFull, StoreUnavailable
from antiphon.core.ids import TenantId, UserId
from antiphon.core.limits import TenantTerms
from antiphon.core.money import month_of, of_nanos
from antiphon.core.terms import SpendLevel, TenantBudget, level_at
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.conversations.base import Owner
from antiphon.stores.custody.base import Custody
from antiphon.stores.usage.base import Ledger, TotalsQuestion

log = structlog.get_logger(__name__)

_PERIOD_S = 10.0
_SHORTEST_S = 0.5
_BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
_END = datetime(9999, 1, 1, tzinfo=UTC)
_NOBODY = UserId("")
_ALERT = "budget.alert"
_AUDIT_READ = 200


@dataclass(frozen=True, slots=True)
class Contracts:
    """As configured. A tenant is named by its name or its id."""

    budgets: tuple[TenantBudget, ...] = ()
    levels: tuple[SpendLevel, ...] = ()


def nobody_slowed(_user_id: UserId) -> int:
    """Nobody is under suspicion."""
    return 1


@dataclass(slots=True)
class Terms:
    """``of`` is cheap and waits for nothing; ``refresh`` reads anew. ``throttle`` tells by what an account under suspicion is slowed."""

    contracts: Contracts
    ledger: Ledger
    accounts: Accounts
    custody: Custody
    clock: Clock
    throttle: Callable[[UserId], int] = nobody_slowed
    _terms: Mapping[TenantId, TenantTerms] = field(default_factory=dict[TenantId, TenantTerms])
    _unknown: asyncio.Event = field(default_factory=asyncio.Event)
    _told: set[tuple[TenantId, str]] = field(default_factory=set[tuple[TenantId, str]])

    def of(self, tenant_id: TenantId, user_id: UserId) -> TenantTerms:
        """What holds for a tenant and an account of it, as of the last refresh."""
        terms = self._terms.get(tenant_id)
        if terms is None:
            terms = TenantTerms()
            self._unknown.set()  # a new tenant: its terms are read now
        slowed = self.throttle(user_id)
        if slowed == 1:
            return terms
        return TenantTerms(terms.tokens_per_minute, terms.requests_per_minute, terms.monthly_budget, slowed)

    async def run_for_ever(self) -> None:
        """Refresh every few seconds until cancelled; what cannot be read now stays as it was."""
        while True:
            try:
                await self.refresh()
            except (StoreUnavailable, DiskFull) as outage:
                log.warning("terms_not_read", reason=outage.code)
            await asyncio.sleep(_SHORTEST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD_S):
                    await self._unknown.wait()
            self._unknown.clear()

    async def refresh(self) -> None:
        """Read what every tenant has spent, and set off the alerts that this reaches. Raises ``StoreUnavailable``, ``DiskFull``."""
        if not self.contracts.budgets and not self.contracts.levels:
            return
        tenants = await self.accounts.tenants()
        spent = await self._spent_since(_BEGINNING)
        now = self.clock.now()
        month, _ = month_of(now)
        this_month = await self._spent_since(now.replace(day=1))
        found: dict[TenantId, TenantTerms] = {}
        for tenant in tenants:
            budget = next((one for one in self.contracts.budgets if one.tenant in {tenant.id, tenant.name}), None)
            level = level_at(self.contracts.levels, spent.get(tenant.id, Decimal(0)))
            found[tenant.id] = TenantTerms(
                tokens_per_minute=0 if level is None else level.tokens_per_minute,
                requests_per_minute=0 if level is None else level.requests_per_minute,
                monthly_budget=None if budget is None else budget.monthly,
            )
            if budget is not None:
                await self._alert(tenant.id, budget, month, this_month.get(tenant.id, Decimal(0)), now)
        self._terms = found

    async def _spent_since(self, since: datetime) -> dict[TenantId, Decimal]:
        totals = await self.ledger.totals(TotalsQuestion(since, _END, ("tenant",)))
        return {TenantId(total.group["tenant"]): of_nanos(total.cost_nanos) for total in totals}

    async def _alert(self, tenant_id: TenantId, budget: TenantBudget, month: str, spent: Decimal, now: datetime) -> None:
        """Tell each share that is reached once in a month; the audit remembers which were, over restarts."""
        due = [f"{month} {share}" for share in sorted(budget.alerts) if spent >= share * budget.monthly and spent > 0]
        if all((tenant_id, told) in self._told for told in due):
            return
        page = await self.custody.audit_page(tenant_id, limit=_AUDIT_READ, after=None)
        self._told |= {(tenant_id, entry.subject) for entry in page.entries if entry.action == _ALERT}
        for told in due:
            if (tenant_id, told) not in self._told:
                self._told.add((tenant_id, told))
                log.warning("budget_alert", tenant_id=tenant_id, share=told, spent=str(spent), budget=str(budget.monthly))
                await self.custody.record(Owner(tenant_id, _NOBODY), _ALERT, told, now=now, by_server=True)
