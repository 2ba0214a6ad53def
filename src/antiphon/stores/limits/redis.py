"""Limits that several servers share, in Redis: one script, Redis's time, all keys of a tenant under one hash tag.

The script is ``tally`` again in Lua, and is held to it call by call (``tests/contracts/test_limits.py``). All its steps may be repeated
when an answer was lost: they know their generation. Keys expire by themselves once they say nothing any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import cast

import msgspec

from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Exhausted, Granted, Limit, Measure, Outcome, Rate, Reservation, Standing, Verdict
from antiphon.stores.limits.redis_link import RedisAddress, RedisLink, RedisLost, RedisRefusal, Word

SCRIPT = files("antiphon.stores.limits").joinpath("limiter.lua").read_text("utf-8")
_SHA1 = hashlib.sha1(SCRIPT.encode("utf-8"), usedforsecurity=False).hexdigest()

_limits = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Step:
    """Which step of its tenant this was, and when, in the tenant's time: steps can be put into their order afterwards."""

    number: int
    now_ms: int


class RedisLimiter:
    """``last_step``: the newest answer's place among its tenant's, for who compares many processes' answers."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._last = [1, 0, 0]

    @staticmethod
    def connect(url: str) -> RedisLimiter:
        """For ``redis[s]://[user:password@]host[:port][/db]``. Connects at the first call."""
        return RedisLimiter(RedisLink(RedisAddress.parse(url)))

    @property
    def last_step(self) -> Step:
        return Step(self._last[1], self._last[2])

    async def reserve(self, reservation: Reservation) -> Verdict:
        granted, _, _, number, wait_ms, *places = await self._run(reservation.tenant_id, "reserve", arguments_of(reservation))
        standings = _standings(reservation.limits, places)
        return Granted(standings) if granted else Exhausted(reservation.limits[number - 1], wait_ms, standings)

    async def renew(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        return (await self._run(tenant_id, "renew", (generation_id,)))[0] == 1

    async def reconcile(self, outcome: Outcome) -> bool:
        return (await self._run(outcome.tenant_id, "reconcile", arguments_of(outcome)))[0] == 1

    async def release(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        return (await self._run(tenant_id, "release", (generation_id,)))[0] == 1

    async def standings(self, tenant_id: TenantId, limits: Sequence[Limit]) -> tuple[Standing, ...]:
        return _standings(limits, (await self._run(tenant_id, "standings", ("", 0, 0, 1, *_packed(limits))))[5:])

    async def close(self) -> None:
        await self._link.close()

    async def _run(self, tenant_id: TenantId, step: str, arguments: Sequence[Word]) -> list[int]:
        words = (1, prefix_of(tenant_id), step, *arguments)
        try:
            try:
                answer = await self._link.call("EVALSHA", _SHA1, *words)
            except RedisRefusal as refusal:
                if not str(refusal).startswith("NOSCRIPT"):
                    raise
                answer = await self._link.call("EVAL", SCRIPT, *words)  # a restarted Redis, or another one after a failover
        except (RedisLost, RedisRefusal) as error:
            raise StoreUnavailable("The limits cannot be read now.", retry_after_ms=1000) from error
        self._last = whole = cast("list[int]", answer)
        return whole


def prefix_of(tenant_id: TenantId) -> str:
    """What all keys of a tenant's limits begin with."""
    return f"antiphon:{{{tenant_id}}}:limit:"


def arguments_of(asked: Reservation | Outcome) -> tuple[Word, ...]:
    """A step's arguments as the script reads them."""
    counts = int(asked.counts) if isinstance(asked, Outcome) else 1
    return (asked.generation_id, asked.tokens, asked.cost_nanos, counts, *_packed(asked.limits))


def _packed(limits: Sequence[Limit]) -> tuple[int, bytes]:
    """What is left of the period of budgets, and the limits, four values each."""
    values: list[Word] = []
    left_ms = 0
    for limit in limits:
        match limit:
            case Rate():
                values += ("T" if limit.measure is Measure.TOKENS else "R", limit.subject, limit.per_minute, 0)
            case Concurrency():
                values += ("C", limit.subject, limit.most, 0)
            case Cap():
                values += ("M", f"cap:{limit.subject}:{limit.model}:{limit.window_ms}", limit.most, limit.window_ms)
            case Budget():
                values += ("B", limit.subject, limit.most_nanos, limit.period)
                left_ms = limit.left_ms
    return left_ms, _limits.encode(values)


def _standings(limits: Sequence[Limit], places: Sequence[int]) -> tuple[Standing, ...]:
    return tuple(map(Standing, limits, places[::2], places[1::2]))
