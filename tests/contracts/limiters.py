"""Limiters whose time the tests move: the memory driver by its clock, the Redis driver by its tenants' clocks in Redis."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from redis import Redis as BlockingRedis

from antiphon.core.clock import ManualClock
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Limit, Measure, Outcome, Rate, Reservation
from antiphon.stores.limits.base import Limiter
from antiphon.stores.limits.redis import prefix_of

TENANT = TenantId("tenant_1")
TOKENS = Rate("user:u1", Measure.TOKENS, 1000)
REQUESTS = Rate("user:u1", Measure.REQUESTS, 20)
RUNNING = Concurrency("user:u1", 2)
HOURLY = Cap("user:u1", "large", 3, 3_600_000)
MONTHLY = Budget("org", "2026-01", 1_000_000, 86_400_000)
_RAW, _NOW = 0, 3


class Bench(Protocol):
    """A limiter and a hand on its time."""

    limiter: Limiter

    def advance(self, seconds: float) -> None: ...

    def set_back(self, seconds: float) -> None:
        """The clock that the driver reads is set back, forth where negative; no time passes."""
        ...

    def hold(self) -> None:
        """What time has passed by itself since the last step has not."""
        ...


@dataclass
class MemoryBench:
    limiter: Limiter
    clock: ManualClock

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        from datetime import timedelta

        self.clock.wall -= timedelta(seconds=seconds)

    def hold(self) -> None:
        pass


@dataclass
class RedisBench:
    """Redis's own clock goes on too, by the few milliseconds that a test takes; ``HeldLimiter`` takes them out."""

    limiter: Limiter
    redis: BlockingRedis
    was_set: bool = False
    """The clock was set, and no step has seen it yet."""

    def advance(self, seconds: float) -> None:
        self._change(now_ms=seconds * 1000)

    def set_back(self, seconds: float) -> None:
        self._change(raw_ms=seconds * 1000)
        self.was_set = True

    def hold(self) -> None:
        if self.was_set:
            return
        seconds, microseconds = self.redis.time()
        is_ms = seconds * 1000 + microseconds // 1000
        clock = self._clock()
        if clock and abs(clock[_RAW] - is_ms) < 600_000:  # else the clock was set, and no step has seen it yet
            clock[_RAW] = is_ms
            self._set(clock)

    def _change(self, raw_ms: float = 0, now_ms: float = 0) -> None:
        clock = self._clock()
        if clock:
            clock[_RAW] += raw_ms
            clock[_NOW] += now_ms
            self._set(clock)

    def _clock(self) -> list[float]:
        """The tenant's clock as the script packs it; empty before the first step."""
        packed = self.redis.hget(prefix_of(TENANT) + "tally", "clock")
        return [] if packed is None else list(struct.unpack(f"<{len(packed) // 8}d", packed))

    def _set(self, clock: list[float]) -> None:
        self.redis.hset(prefix_of(TENANT) + "tally", "clock", struct.pack(f"<{len(clock)}d", *clock))


class HeldLimiter:
    """A limiter in Redis for whose tenant no time passes but what the test lets pass, however long the machine stands still."""

    def __init__(self, bench: RedisBench) -> None:
        self._bench = bench
        self._limiter = bench.limiter

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self._limiter, name)

        async def call(*args: object) -> object:
            self._bench.hold()
            answer = await method(*args)
            self._bench.was_set = False
            return answer

        return call


def reservation(name: str, *limits: Limit, tokens: int = 100, cost: int = 0) -> Reservation:
    return Reservation(TENANT, GenerationId(f"gen_{name}"), tokens, cost, limits)


def outcome(name: str, *limits: Limit, tokens: int = 0, cost: int = 0, counts: bool = True) -> Outcome:
    return Outcome(TENANT, GenerationId(f"gen_{name}"), tokens, cost, limits, counts)
