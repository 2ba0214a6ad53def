"""The watch on real limits and real stores: flagged, slowed, reviewed; a restart forgives nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antiphon.core.abuse import CaseState
from antiphon.core.allowance import Customer, Serving
from antiphon.core.clock import ManualClock
from antiphon.core.errors import RateLimited, StoreUnavailable
from antiphon.core.generation import GenerationStatus, Usage
from antiphon.core.ids import GenerationId, KeyId, TenantId, UserId
from antiphon.core.limits import Measure, Rate
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Tenant, User, UserRole
from antiphon.governance.abuse import AbuseWatch
from antiphon.governance.review import review
from antiphon.governance.terms import Contracts, Terms
from antiphon.orchestrator.allowances import Allowances, Ended
from antiphon.stores.abuse.memory import MemoryAbuseCases
from antiphon.stores.accounts.memory import MemoryAccounts
from antiphon.stores.conversations.base import Owner
from antiphon.stores.custody.memory import MemoryCustody
from antiphon.stores.limits.memory import MemoryLimiter
from antiphon.stores.memory import MemoryState
from antiphon.stores.usage.memory import MemoryLedger
from tests.contracts.test_usage import record

PLAN = Plan("free", tokens_per_minute=4000, requests_per_minute=1000, concurrency=8)
SERVING = Serving("small", "m")


class World:
    """One server's limits with their watch, on stores that outlive it."""

    def __init__(self, clock: ManualClock, *, throttles: bool = True) -> None:
        self.clock, self.throttles = clock, throttles
        self.state = MemoryState()
        self.cases, self.accounts, self.custody = MemoryAbuseCases(self.state), MemoryAccounts(self.state), MemoryCustody(self.state)
        self.ledger = MemoryLedger()
        self.start()

    def start(self) -> None:
        self.watch = AbuseWatch(self.cases, self.accounts, self.clock, throttles=self.throttles)
        terms = Terms(Contracts(), self.ledger, self.accounts, self.custody, self.clock, self.watch.throttle_of)
        self.allowances = Allowances(MemoryLimiter(self.clock), self.clock, terms=terms.of, watch=self.watch)

    async def customer(self, role: UserRole = UserRole.MEMBER, name: str = "ann") -> Customer:
        tenant = Tenant(TenantId("tenant_1"), "home", self.clock.now())
        if tenant.id not in self.state.tenants:
            await self.accounts.create_tenant(tenant)
        user = User(UserId(f"user_{name}"), tenant.id, name, role, "free", False, self.clock.now())
        await self.accounts.create_user(user)
        return Customer(tenant.id, user.id, KeyId("key_1"), PLAN)

    def flood(self, customer: Customer, turns: int = 150) -> None:
        for number in range(turns):
            self.watch.began(customer, GenerationId(f"gen_{number}"), "", "Write  a poem" if number % 2 else "write a POEM")

    async def state_of(self, customer: Customer) -> CaseState | None:
        await self.watch.refresh()
        self.watch.check()
        case = await self.cases.get(customer.tenant_id, customer.user_id)
        return None if case is None else case.state

    async def most_tokens(self, customer: Customer) -> int:
        standings = await self.allowances.standings(customer, (SERVING,))
        limits = [standing.limit for standing in standings]
        return next(limit.per_minute for limit in limits if isinstance(limit, Rate) and limit.measure is Measure.TOKENS)

    def told(self) -> list[str]:
        return [entry.action for entry in self.state.audit]


async def test_flagged_then_slowed_then_cleared_by_a_person(clock: ManualClock) -> None:
    world = World(clock)
    ann = await world.customer()
    assert await world.state_of(ann) is None
    world.flood(ann)
    assert await world.state_of(ann) is CaseState.FLAGGED
    assert await world.most_tokens(ann) == 4000, "a flag is not felt"
    clock.advance(61)
    assert await world.state_of(ann) is CaseState.THROTTLED
    assert await world.most_tokens(ann) == 1000
    with pytest.raises(RateLimited, match=r"Your account, which is slowed for now, allows 1000 tokens per minute; 100 remain"):
        for number in range(2):
            await world.allowances.reserve(ann, SERVING, GenerationId(f"g{number}"), prompt_tokens=900, most_output_tokens=0)
    admin = Owner(ann.tenant_id, UserId("user_admin"))
    user = await world.accounts.user(ann.user_id)
    decided = await review(world.cases, user, admin, throttled=False, now=clock.now())
    assert decided.reviewed_by == "user_admin"
    assert await world.state_of(ann) is CaseState.CLEAR
    assert await world.most_tokens(ann) == 4000
    world.flood(ann)
    assert await world.state_of(ann) is CaseState.CLEAR, "who is trusted is left alone"
    clock.advance(8 * 86_400)
    world.flood(ann)
    assert await world.state_of(ann) is CaseState.FLAGGED
    assert world.told() == ["abuse.flag", "abuse.throttle", "abuse.clear", "abuse.flag"]
    assert all(entry.subject == ann.user_id for entry in world.state.audit)


async def test_a_restart_forgives_nothing_and_calm_lifts_it(clock: ManualClock) -> None:
    world = World(clock)
    ann = await world.customer()
    world.flood(ann)
    await world.watch.refresh()
    clock.advance(61)
    await world.watch.refresh()
    world.start()
    await world.watch.refresh()
    assert await world.most_tokens(ann) == 1000
    clock.advance(3500)
    assert await world.state_of(ann) is CaseState.THROTTLED
    clock.advance(200)
    assert await world.state_of(ann) is CaseState.CLEAR
    assert await world.most_tokens(ann) == 4000
    assert world.told() == ["abuse.flag", "abuse.throttle", "abuse.lift"]


async def test_what_a_ledger_remembers_counts_after_a_restart(clock: ManualClock) -> None:
    world = World(clock)
    ann = await world.customer()
    busy = [
        replace(
            record(number, at=clock.now()),
            tenant_id=ann.tenant_id,
            user_id=ann.user_id,
            usage=Usage(10, 0, 50, prefill_ms=1000, decode_ms=29_000),
        )
        for number in range(120)
    ]
    ends = [replace(one, finished_at=clock.now().replace(microsecond=0)) for one in busy]
    for one in ends:
        clock.advance(30)
        await world.ledger.put([replace(one, finished_at=clock.now())])
    world.watch.recall(await world.ledger.recent(since=clock.now().replace(year=2000)))
    world.watch.ran(ann, clock.now(), 30_000)  # told again by the relay: the same half minute
    assert await world.state_of(ann) is CaseState.FLAGGED
    (case,) = await world.cases.of_tenant(ann.tenant_id)
    assert [signal.name for signal in case.signals][:1] == ["continuous_generation"]
    clock.advance(31 * 60)
    assert await world.state_of(ann) is CaseState.FLAGGED, "it has rested since"


async def test_whoever_manages_others_is_left_alone_and_flags_alone_slow_nobody(clock: ManualClock) -> None:
    world = World(clock, throttles=False)
    boss, ann = await world.customer(UserRole.OWNER, "boss"), await world.customer(UserRole.MEMBER, "ann")
    world.flood(boss)
    world.flood(ann)
    assert await world.state_of(boss) is None
    clock.advance(120)
    world.flood(ann)
    assert await world.state_of(ann) is CaseState.FLAGGED
    assert world.told() == ["abuse.flag"]


async def test_a_turn_that_runs_is_seen_by_the_limits_and_an_account_that_is_gone_by_nobody(clock: ManualClock) -> None:
    world = World(clock)
    ann = await world.customer()
    for number in range(120):
        clock.advance(30)
        ended = Ended(GenerationId(f"g{number}"), GenerationStatus.COMPLETE, Usage(5, 0, 5, prefill_ms=0, decode_ms=30_000), clock.now())
        await world.allowances.settle(ann, SERVING, ended)
    assert await world.state_of(ann) is CaseState.FLAGGED
    nobody = replace(ann, user_id=UserId("user_gone"))
    world.flood(nobody)
    assert await world.state_of(nobody) is None


class AwayOnce(MemoryAbuseCases):
    away = True

    async def put(self, *arguments: object, **named: object) -> None:
        if self.away:
            self.away = False
            raise StoreUnavailable
        await super().put(*arguments, **named)  # type: ignore[arg-type]


async def test_what_could_not_be_written_is_looked_at_again(clock: ManualClock) -> None:
    world = World(clock)
    world.cases = AwayOnce(world.state)
    world.start()
    ann = await world.customer()
    world.flood(ann)
    with pytest.raises(StoreUnavailable):
        await world.watch.refresh()
    assert await world.state_of(ann) is CaseState.FLAGGED
