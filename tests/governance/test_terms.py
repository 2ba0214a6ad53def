"""A tenant's rates rise with what it has spent, and budgets are told when they are reached, once."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from antiphon.core.allowance import Customer, Serving
from antiphon.core.clock import ManualClock
from antiphon.core.errors import RateLimited
from antiphon.core.ids import GenerationId, TenantId, UserId
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Tenant
from antiphon.core.terms import SpendLevel, TenantBudget, level_at
from antiphon.governance.terms import Contracts, Terms
from antiphon.orchestrator.allowances import Allowances
from antiphon.stores.accounts.memory import MemoryAccounts
from antiphon.stores.custody.memory import MemoryCustody
from antiphon.stores.limits.memory import MemoryLimiter
from antiphon.stores.memory import MemoryState
from antiphon.stores.usage.memory import MemoryLedger
from tests.contracts.test_usage import record

LEVELS = (SpendLevel(Decimal(50), 4000, 40), SpendLevel(Decimal(0), 1000, 10), SpendLevel(Decimal(200), 0, 0))
TENANT = TenantId("tenant_t1")
PLAN = Plan("free", tokens_per_minute=1_000_000, requests_per_minute=1000, concurrency=100)


def test_the_highest_level_that_is_reached_holds() -> None:
    assert level_at(LEVELS[:1], Decimal("49.99")) is None
    assert level_at(LEVELS, Decimal(0)) == LEVELS[1]
    assert level_at(LEVELS, Decimal(50)) == level_at(LEVELS, Decimal("199.99")) == LEVELS[0]
    assert level_at(LEVELS, Decimal(200)) == LEVELS[2]


async def test_rates_of_a_tenant_rise_with_what_it_has_spent_and_bind_all_its_people(clock: ManualClock) -> None:
    state, ledger = MemoryState(), MemoryLedger()
    accounts = MemoryAccounts(state)
    await accounts.create_tenant(Tenant(TENANT, "acme", clock.now()))
    terms = Terms(Contracts(levels=LEVELS), ledger, accounts, MemoryCustody(state), clock)
    await terms.refresh()
    allowances = Allowances(MemoryLimiter(clock), clock, terms=terms.of)

    async def ask(number: int, tokens: int) -> None:
        customer = Customer(TENANT, UserId(f"user_{number}"), None, PLAN)
        name = GenerationId(f"gen_{clock.now()}_{number}")
        await allowances.reserve(customer, Serving("small", "m"), name, prompt_tokens=tokens, most_output_tokens=0)

    await ask(1, 900)
    with pytest.raises(RateLimited, match="Your organisation allows 1000 tokens per minute; 100 remain"):
        await ask(2, 900)
    await ledger.put([record(1, cost="60", at=clock.now())])
    clock.advance(120)
    await terms.refresh()
    for number in range(4):
        await ask(number, 900)
    with pytest.raises(RateLimited, match="4000 tokens"):
        await ask(5, 900)
    await ledger.put([record(2, cost="140", at=clock.now())])
    await terms.refresh()
    for number in range(20):
        await ask(number + 10, 900)


async def test_an_alert_is_told_once_a_month_over_restarts(clock: ManualClock) -> None:
    state, ledger = MemoryState(), MemoryLedger()
    accounts, custody = MemoryAccounts(state), MemoryCustody(state)
    await accounts.create_tenant(Tenant(TENANT, "acme", clock.now()))
    budget = TenantBudget("acme", Decimal(10), (Decimal("0.5"), Decimal(1)))

    async def looked() -> list[str]:
        """By a server that has just begun, twice."""
        terms = Terms(Contracts(budgets=(budget,)), ledger, accounts, custody, clock)
        await terms.refresh()
        await terms.refresh()
        assert terms.of(TENANT, UserId("user_1")).monthly_budget == Decimal(10)
        return [entry.subject for entry in state.audit]

    assert await looked() == []
    await ledger.put([record(1, cost="5", at=clock.now())])
    assert await looked() == ["2026-01 0.5"]
    await ledger.put([record(2, cost="6", at=clock.now())])
    assert await looked() == await looked() == ["2026-01 0.5", "2026-01 1"]
    clock.advance(32 * 86_400)
    await ledger.put([replace(record(3, cost="5"), finished_at=clock.now())])
    assert await looked() == ["2026-01 0.5", "2026-01 1", "2026-02 0.5"]
