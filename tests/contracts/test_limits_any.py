"""The Redis limiter against the sequential machine with demands nobody would write: any limits in any order, times that jump."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import redis

from antiphon.app.system import SystemClock
from antiphon.core.ids import GenerationId
from antiphon.core.limits import Budget, Cap, Concurrency, Exhausted, Limit, Measure, Outcome, Rate, Reservation
from antiphon.stores.limits.redis import RedisLimiter
from antiphon.stores.limits.tally import Tally
from tests.contracts.drift import Act, Question, Release, Renewal, act_on, replayed
from tests.contracts.limiters import TENANT, RedisBench
from tests.redis_server import RedisServer, redis_programs

STEPS = 500


def any_limits(noise: random.Random) -> tuple[Limit, ...]:
    """Some of all that can be said of five subjects, the tenant among them, in any order; limits of nothing at all are rare."""
    left_ms = noise.choice((0, 1, 5000))
    found: list[Limit] = []
    for subject in ("tenant", "user:1", "user:2", "key:1", "org"):
        if noise.random() < 0.5:
            found.append(Rate(subject, Measure.TOKENS, noise.choice((7, *(60_000, 100_000, 150_000) * 3))))
        if noise.random() < 0.3:
            found.append(Rate(subject, Measure.REQUESTS, noise.choice((3, 200, 200, 200))))
        if noise.random() < 0.5:
            found.append(Concurrency(subject, noise.choice((0, 2, *(5, 9, 9, 9) * 3))))
        found += [
            Cap(subject, model, noise.choice((0, 3, *(10, 30, 30) * 4)), noise.choice((5000, 60_000, 3_600_000)))
            for model in ("a", "b")
            if noise.random() < 0.3
        ]
        if noise.random() < 0.3:
            found.append(Budget(subject, noise.choice(("m1", "m2")), noise.choice((0, 500, *(10**9,) * 8)), left_ms))
    noise.shuffle(found)
    return tuple(found)


def any_act(noise: random.Random, number: int, made: list[Reservation]) -> Act:
    kind = noise.random()
    if kind < 0.5 or not made:
        made.append(
            Reservation(
                TENANT, GenerationId(f"gen_{number}"), noise.choice((0, 1, 900, 5000)), noise.choice((0, 200, 100_000)), any_limits(noise)
            )
        )
        return made[-1] if noise.random() < 0.95 else noise.choice(made[-20:])
    old = noise.choice(made[-30:])
    if kind < 0.8:
        limits = old.limits if noise.random() < 0.6 else any_limits(noise)
        return Outcome(TENANT, old.generation_id, noise.choice((0, 50, 900, 6000)), noise.choice((0, 5, 300)), limits, noise.random() < 0.8)
    if kind < 0.86:
        return Release(TENANT, old.generation_id)
    return Renewal(TENANT, old.generation_id) if kind < 0.93 else Question(TENANT, any_limits(noise))


@pytest.mark.parametrize("program", [0, -1], ids=["redis-newest", "redis-oldest"])
@pytest.mark.parametrize("seed", range(3))
async def test_any_demands_are_answered_as_the_machine_answers(program: int, seed: int, tmp_path: Path) -> None:
    server = RedisServer(tmp_path, redis_programs()[program])
    server.start()
    hand, limiter = redis.Redis.from_url(server.url), RedisLimiter.connect(server.url, SystemClock())
    bench, tally, noise = RedisBench(limiter, hand), Tally(), random.Random(seed)
    made: list[Reservation] = []
    granted = refused = 0
    try:
        for number in range(STEPS):
            if noise.random() < 0.1:
                bench.advance(noise.choice((0.5, 3, 10, 31, 65, 4000)))
            if noise.random() < 0.02:
                bench.set_back(noise.choice((3600, -3600, 10)))
            act = any_act(noise, number, made)
            answer = await act_on(limiter, act)
            expected = replayed(tally, act, limiter.last_step.now_ms)
            assert answer == expected, (number, act)
            tally.check()
            if isinstance(act, Reservation):
                refused += isinstance(answer, Exhausted)
                granted += not isinstance(answer, Exhausted)
    finally:
        await limiter.close()
        hand.close()
        server.stop()
    assert min(granted, refused) > 30
