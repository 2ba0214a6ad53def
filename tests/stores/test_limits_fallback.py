"""The limits of a server whose Redis is killed: a share at once, nothing lost when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.clock import ManualClock
from antiphon.core.limits import Exhausted, Granted
from antiphon.stores.limits.fallback import FallbackLimiter
from antiphon.stores.limits.memory import MemoryLimiter
from antiphon.stores.limits.redis import RedisLimiter
from tests.awake import awake_s
from tests.contracts.limiters import MONTHLY, TENANT, TOKENS, outcome, reservation
from tests.redis_server import RedisServer


@pytest.mark.timeout(60)
async def test_a_killed_redis_leaves_a_share_and_learns_what_it_missed(tmp_path: Path, clock: ManualClock) -> None:
    server = RedisServer(tmp_path)
    server.start()
    shared = RedisLimiter.connect(server.url, SystemClock())
    limiter = FallbackLimiter(shared, MemoryLimiter(clock), clock, share=0.25)
    try:
        assert isinstance(await limiter.reserve(reservation("before", TOKENS, MONTHLY, tokens=100)), Granted)
        server.stop()
        assert isinstance(await limiter.reserve(reservation("a", TOKENS, MONTHLY, tokens=200)), Granted)
        start = awake_s()
        refused = await limiter.reserve(reservation("b", TOKENS, MONTHLY, tokens=200))
        assert awake_s() - start < 0.5, "an outage that is known costs callers no waiting"
        assert isinstance(refused, Exhausted)
        assert refused.standings[0].most == 250
        assert await limiter.reconcile(outcome("before", TOKENS, MONTHLY, tokens=60, cost=5))
        assert await limiter.reconcile(outcome("a", TOKENS, MONTHLY, tokens=150, cost=7))
        assert not await limiter.reconcile(outcome("a", TOKENS, MONTHLY, tokens=150, cost=7))
        server.start()
        clock.advance(3)
        (_, money) = await limiter.standings(TENANT, (TOKENS, MONTHLY))
        assert money.used == 12
        (tokens,) = await shared.standings(TENANT, (TOKENS,))
        assert 150 <= tokens.used <= 210
        assert not await limiter.reconcile(outcome("a", TOKENS, MONTHLY, tokens=150, cost=7))
    finally:
        await limiter.close()
        server.stop()
