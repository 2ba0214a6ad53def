"""The contract of limiters: reserved before, reconciled after, once; nothing is free, and nothing is kept from anybody for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import redis

from antiphon.app.system import SystemClock
from antiphon.core.clock import ManualClock
from antiphon.core.ids import TenantId
from antiphon.core.limits import Exhausted, Granted, Limit, Measure, Rate, Verdict
from antiphon.stores.limits.base import HOLD_MS, Limiter
from antiphon.stores.limits.memory import MemoryLimiter
from antiphon.stores.limits.redis import RedisLimiter
from tests.contracts.limiters import (
    HOURLY,
    MONTHLY,
    REQUESTS,
    RUNNING,
    TENANT,
    TOKENS,
    Bench,
    HeldLimiter,
    MemoryBench,
    RedisBench,
    outcome,
    reservation,
)
from tests.redis_server import RedisServer, redis_programs


@pytest.fixture(scope="module")
def redis_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """One of each version that this machine has."""
    servers = [RedisServer(tmp_path_factory.mktemp("redis"), program) for program in redis_programs()]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def redis_server(redis_servers: list[RedisServer]) -> RedisServer:
    return redis_servers[0]


@pytest.fixture(params=["memory", "redis-newest", "redis-oldest"])
async def bench(request: pytest.FixtureRequest, redis_servers: list[RedisServer]) -> AsyncIterator[Bench]:
    if request.param == "memory":
        clock = ManualClock()
        memory = MemoryLimiter(clock)
        yield MemoryBench(memory, clock)
        memory.check()
        return
    server = redis_servers[0 if request.param == "redis-newest" else -1]
    hand = redis.Redis.from_url(server.url)
    hand.flushall()
    limiter = RedisLimiter.connect(server.url, SystemClock())
    bench = RedisBench(limiter, hand)
    bench.limiter = cast("Limiter", HeldLimiter(bench))
    yield bench
    await limiter.close()
    hand.close()


def refused(verdict: Verdict) -> tuple[Limit, int]:
    assert isinstance(verdict, Exhausted)
    return verdict.limit, verdict.retry_in_ms


async def used(bench: Bench, *limits: Limit) -> list[int]:
    bench.hold()
    return [standing.used for standing in await bench.limiter.standings(TENANT, limits)]


async def test_of_twenty_parallel_sends_one_runs_and_the_others_learn_a_time_that_is_true(bench: Bench) -> None:
    asked = [reservation(str(number), TOKENS, tokens=900) for number in range(20)]
    verdicts = await asyncio.gather(*(bench.limiter.reserve(one) for one in asked))
    assert sum(isinstance(verdict, Granted) for verdict in verdicts) == 1
    waits = [refused(verdict)[1] for verdict in verdicts if not isinstance(verdict, Granted)]
    assert len(waits) == 19
    assert all(abs(wait - 48_000) < 300 for wait in waits)  # 800 tokens come back at 1,000 a minute
    early, true = replace(asked[0], generation_id="gen_a"), replace(asked[0], generation_id="gen_b")
    for _ in range(2):  # it stays alive, as a running server keeps it
        bench.advance(23.5)
        await asyncio.gather(*(bench.limiter.renew(TENANT, one.generation_id) for one in asked))
    assert isinstance(await bench.limiter.reserve(early), Exhausted)
    bench.advance(1)
    assert isinstance(await bench.limiter.reserve(true), Granted)


async def test_a_refused_reservation_leaves_no_trace(bench: Bench) -> None:
    full = Rate("user:u1", Measure.REQUESTS, 1)
    assert isinstance(await bench.limiter.reserve(reservation("a", TOKENS, full, RUNNING, HOURLY, MONTHLY, cost=5)), Granted)
    before = await used(bench, TOKENS, full, RUNNING, HOURLY, MONTHLY)
    assert before == [100, 1, 1, 1, 5]
    limit, wait = refused(await bench.limiter.reserve(reservation("b", TOKENS, full, RUNNING, HOURLY, MONTHLY, cost=5)))
    assert limit == full
    assert abs(wait - 60_000) < 300
    assert await used(bench, TOKENS, full, RUNNING, HOURLY, MONTHLY) == before


async def test_what_was_not_used_comes_back_and_what_was_used_beyond_is_owed(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, tokens=900))
    assert await bench.limiter.reconcile(outcome("a", TOKENS, tokens=200))
    assert await used(bench, TOKENS) == [200]
    await bench.limiter.reserve(reservation("b", TOKENS, tokens=300))
    assert await bench.limiter.reconcile(outcome("b", TOKENS, tokens=1500))
    assert 1695 <= (await used(bench, TOKENS))[0] <= 1700
    bench.advance(60)
    assert 695 <= (await used(bench, TOKENS))[0] <= 700


async def test_a_second_reconcile_does_nothing(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY, tokens=900, cost=900))
    last = outcome("a", TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY, tokens=100, cost=100)
    assert await bench.limiter.reconcile(last)
    before = await used(bench, TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY)
    assert before == [100, 1, 0, 1, 100]
    assert not await bench.limiter.reconcile(last)
    assert not await bench.limiter.release(TENANT, last.generation_id)
    assert isinstance(await bench.limiter.reserve(reservation("a", TOKENS, RUNNING, tokens=900)), Granted)
    assert await used(bench, TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY) == before


async def test_a_second_reserve_of_one_generation_holds_once(bench: Bench) -> None:
    for _ in range(3):
        assert isinstance(await bench.limiter.reserve(reservation("a", TOKENS, RUNNING)), Granted)
    assert await used(bench, TOKENS, RUNNING) == [100, 1]


async def test_time_that_passes_while_a_generation_runs_is_not_paid_twice(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, tokens=900))
    bench.advance(29)
    await bench.limiter.renew(TENANT, outcome("a").generation_id)
    bench.advance(29)
    await bench.limiter.reconcile(outcome("a", TOKENS, tokens=890))
    assert await used(bench, TOKENS) == [0]


async def test_a_failure_without_a_token_counts_for_nothing(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY, cost=10))
    await bench.limiter.reconcile(outcome("a", TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY, counts=False))
    assert await used(bench, TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY) == [0, 0, 0, 0, 0]


async def test_release_gives_everything_back(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY, cost=10))
    assert await bench.limiter.release(TENANT, outcome("a").generation_id)
    assert not await bench.limiter.release(TENANT, outcome("a").generation_id)
    assert await used(bench, TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY) == [0, 0, 0, 0, 0]


async def test_a_dead_servers_reservation_comes_back_and_its_generation_is_still_charged_once(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, RUNNING, HOURLY, MONTHLY, tokens=900, cost=10))
    bench.advance(HOLD_MS / 1000 - 1)
    assert (await used(bench, RUNNING, HOURLY, MONTHLY)) == [1, 1, 10]
    bench.advance(1.1)
    assert (await used(bench, TOKENS, RUNNING, HOURLY, MONTHLY)) == [0, 0, 0, 0]
    assert not await bench.limiter.renew(TENANT, outcome("a").generation_id)
    assert await bench.limiter.reconcile(outcome("a", TOKENS, RUNNING, HOURLY, MONTHLY, tokens=300, cost=7))
    assert not await bench.limiter.reconcile(outcome("a", TOKENS, RUNNING, HOURLY, MONTHLY, tokens=300, cost=7))
    tokens, *others = await used(bench, TOKENS, RUNNING, HOURLY, MONTHLY)
    assert (298 <= tokens <= 300, others) == (True, [0, 1, 7])


async def test_a_renewed_reservation_lives_on(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", RUNNING))
    for _ in range(4):
        bench.advance(20)
        assert await bench.limiter.renew(TENANT, outcome("a").generation_id)
    assert await used(bench, RUNNING) == [1]


async def test_many_dead_reservations_come_back_within_a_few_steps(bench: Bench) -> None:
    wide = Rate("org", Measure.TOKENS, 1_000_000)
    for number in range(80):
        await bench.limiter.reserve(reservation(str(number), wide, tokens=1000))
    bench.advance(HOLD_MS / 1000)
    for _ in range(3):
        await bench.limiter.standings(TENANT, ())
    assert await used(bench, wide) == [0]


async def test_concurrency_is_how_many_are_being_written(bench: Bench) -> None:
    for name in "ab":
        assert isinstance(await bench.limiter.reserve(reservation(name, RUNNING)), Granted)
    limit, wait = refused(await bench.limiter.reserve(reservation("c", RUNNING)))
    assert (limit, wait) == (RUNNING, 1000)
    await bench.limiter.reconcile(outcome("a", RUNNING))
    assert isinstance(await bench.limiter.reserve(reservation("c", RUNNING)), Granted)


async def test_a_cap_counts_in_a_window_that_rolls(bench: Bench) -> None:
    for name in "abc":
        assert isinstance(await bench.limiter.reserve(reservation(name, HOURLY)), Granted)
        await bench.limiter.reconcile(outcome(name, HOURLY))
        bench.advance(600)
    limit, wait = refused(await bench.limiter.reserve(reservation("d", HOURLY)))
    assert limit == HOURLY
    assert abs(wait - 1_800_000) < 300
    bench.advance(wait / 1000 - 0.5)
    assert isinstance(await bench.limiter.reserve(reservation("d", HOURLY)), Exhausted)
    bench.advance(0.6)
    assert isinstance(await bench.limiter.reserve(reservation("d", HOURLY)), Granted)
    assert await used(bench, HOURLY) == [3]
    none = replace(HOURLY, most=0, model="other")
    assert refused(await bench.limiter.reserve(reservation("e", none))) == (none, none.window_ms)


async def test_a_turn_counts_against_the_model_that_served_it(bench: Bench) -> None:
    small = replace(HOURLY, model="small")
    await bench.limiter.reserve(reservation("a", HOURLY))
    bench.advance(10)
    await bench.limiter.reconcile(outcome("a", small))
    assert await used(bench, HOURLY, small) == [0, 1]
    standing = (await bench.limiter.standings(TENANT, (small,)))[0]
    assert abs(standing.resets_in_ms - 3_590_000) < 300


async def test_a_request_larger_than_the_rate_runs_once_all_is_repaid_and_then_owes(bench: Bench) -> None:
    assert isinstance(await bench.limiter.reserve(reservation("a", TOKENS, tokens=5000)), Granted)
    limit, wait = refused(await bench.limiter.reserve(reservation("b", TOKENS, tokens=5000)))
    assert limit == TOKENS
    assert abs(wait - 300_000) < 300


async def test_a_budget_stops_hard_and_a_refund_opens_it(bench: Bench) -> None:
    assert isinstance(await bench.limiter.reserve(reservation("a", MONTHLY, cost=999_999)), Granted)
    assert refused(await bench.limiter.reserve(reservation("b", MONTHLY, cost=2))) == (MONTHLY, MONTHLY.left_ms)
    await bench.limiter.reconcile(outcome("a", MONTHLY, cost=400_000))
    assert isinstance(await bench.limiter.reserve(reservation("b", MONTHLY, cost=600_000)), Granted)
    assert isinstance(await bench.limiter.reserve(reservation("c", MONTHLY)), Exhausted)  # also what has no price
    next_month = replace(MONTHLY, period="2026-02")
    assert isinstance(await bench.limiter.reserve(reservation("c", next_month, cost=5)), Granted)


async def test_a_clock_that_is_set_frees_nothing_and_keeps_nobody_waiting(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, HOURLY, tokens=1000))
    await bench.limiter.reconcile(outcome("a", TOKENS, HOURLY, tokens=1000))
    bench.set_back(3600)
    assert await used(bench, TOKENS, HOURLY) == [1000, 1]
    assert isinstance(await bench.limiter.reserve(reservation("b", TOKENS)), Exhausted)
    bench.set_back(-3600)
    assert await used(bench, TOKENS, HOURLY) == [1000, 1]
    bench.set_back(3600)
    bench.advance(6.5)
    assert isinstance(await bench.limiter.reserve(reservation("b", TOKENS)), Granted)


async def test_a_clock_set_forth_frees_next_to_nothing(bench: Bench) -> None:
    """Nothing was set back before, so only callers can know that the hour did not pass."""
    await bench.limiter.reserve(reservation("a", TOKENS, HOURLY, MONTHLY, tokens=1000, cost=1_000_000))
    await bench.limiter.reconcile(outcome("a", TOKENS, HOURLY, MONTHLY, tokens=1000, cost=1_000_000))
    for _ in range(3):
        bench.set_back(-3600)
        assert isinstance(await bench.limiter.reserve(reservation("b", TOKENS)), Exhausted)
    tokens, *others = await used(bench, TOKENS, HOURLY, MONTHLY)
    assert tokens >= 900
    assert others == [1, 1_000_000]
    bench.advance(6.5)
    assert isinstance(await bench.limiter.reserve(reservation("b", TOKENS)), Granted)


async def test_what_says_nothing_any_more_is_forgotten_while_the_tenant_lives(redis_server: RedisServer) -> None:
    limiter = RedisLimiter.connect(redis_server.url, SystemClock())
    hand = redis.Redis.from_url(redis_server.url)
    hand.flushall()
    bench = RedisBench(limiter, hand)
    for day in range(6):
        for number in range(100):
            user = Rate(f"user:{day}:{number}", Measure.TOKENS, 1000)
            await limiter.reserve(reservation(f"{day}:{number}", user))
            await limiter.reconcile(outcome(f"{day}:{number}", user, tokens=10))
        bench.advance(86_400 + 300)
    assert hand.hlen("antiphon:{tenant_1}:limit:tally") < 500  # of 1,200 users and generations
    await limiter.close()
    hand.close()


async def test_a_key_and_an_organisation_are_bounded_beside_the_user(bench: Bench) -> None:
    key, org = Rate("key:k1", Measure.TOKENS, 500), Rate("org", Measure.TOKENS, 700)
    assert isinstance(await bench.limiter.reserve(reservation("a", TOKENS, key, org, tokens=400)), Granted)
    assert refused(await bench.limiter.reserve(reservation("b", TOKENS, key, org, tokens=200)))[0] == key
    other = Rate("user:u2", Measure.TOKENS, 1000)
    assert refused(await bench.limiter.reserve(reservation("c", other, org, tokens=400)))[0] == org
    assert isinstance(await bench.limiter.reserve(reservation("d", other, org, tokens=300)), Granted)


async def test_who_comes_back_after_a_rest_is_limited_at_once(bench: Bench) -> None:
    for _ in range(3):
        bench.advance(100)
        assert isinstance(await bench.limiter.reserve(reservation("a", TOKENS, tokens=900)), Granted)
        assert isinstance(await bench.limiter.reserve(reservation("b", TOKENS, tokens=900)), Exhausted)
        assert await bench.limiter.release(TENANT, reservation("a").generation_id)


async def test_tenants_do_not_share(bench: Bench) -> None:
    await bench.limiter.reserve(reservation("a", TOKENS, tokens=1000))
    elsewhere = replace(reservation("a", TOKENS, tokens=1000), tenant_id=TenantId("tenant_2"))
    assert isinstance(await bench.limiter.reserve(elsewhere), Granted)


@pytest.mark.parametrize("amount", [-1, 2**63, 1.5, float("nan"), float("inf"), True, "9"])
def test_an_amount_that_is_none_is_refused_before_it_gets_anywhere(amount: object) -> None:
    with pytest.raises(ValueError, match="amount"):
        reservation("a", TOKENS, tokens=amount)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="amount"):
        outcome("a", TOKENS, cost=amount)  # type: ignore[arg-type]


async def test_a_redis_that_lost_its_scripts_gets_them_again(redis_server: RedisServer) -> None:
    limiter = RedisLimiter.connect(redis_server.url, SystemClock())
    hand = redis.Redis.from_url(redis_server.url)
    hand.flushall()
    await limiter.reserve(reservation("a", TOKENS))
    hand.script_flush()
    assert isinstance(await limiter.reserve(reservation("b", TOKENS)), Granted)
    assert [standing.used for standing in await limiter.standings(TENANT, (TOKENS,))] == [200]
    await limiter.close()
    hand.close()


async def test_every_key_in_redis_carries_the_tenants_tag_and_expires(redis_server: RedisServer) -> None:
    limiter = RedisLimiter.connect(redis_server.url, SystemClock())
    hand = redis.Redis.from_url(redis_server.url, decode_responses=True)
    hand.flushall()
    limits = (TOKENS, REQUESTS, RUNNING, HOURLY, MONTHLY)
    await limiter.reserve(reservation("a", *limits, cost=3))
    await limiter.reserve(reservation("b", *limits, cost=3))
    await limiter.renew(TENANT, reservation("a").generation_id)
    await limiter.reconcile(outcome("b", *limits, tokens=7, cost=2))
    keys = list(hand.scan_iter("*"))
    assert len(keys) == 3  # the tenant itself, what is open, and a cap
    assert all(key.startswith("antiphon:{tenant_1}:limit:") for key in keys)
    assert [key for key in keys if hand.pttl(key) < 0] == []
    await limiter.close()
    hand.close()


def test_the_script_travels_with_the_package() -> None:
    import antiphon.stores.limits as package

    assert (Path(package.__file__).parent / "limiter.lua").is_file()
