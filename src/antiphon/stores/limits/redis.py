"""Limits that several servers share, in Redis: one script, Redis's time, all keys of a tenant under one hash tag.

The script is ``tally`` again in Lua, and is held to it call by call (``tests/contracts/test_limits.py``). All its steps may be repeated
when an answer was lost: they know their generation. Keys expire by themselves once they say nothing any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from struct import Struct
from typing import cast, overload

import msgspec

from antiphon.core.clock import Clock
from antiphon.core.errors import StoreUnavailable
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Budget, Cap, Concurrency, Exhausted, Granted, Limit, Measure, Outcome, Rate, Reservation, Standing, Verdict
from antiphon.stores.limits.redis_link import RedisAddress, RedisLink, RedisLost, RedisRefusal, Word
from antiphon.stores.limits.tally import PARTS

SCRIPT = files("antiphon.stores.limits").joinpath("limiter.lua").read_text("utf-8")
_SHA1 = hashlib.sha1(SCRIPT.encode("utf-8"), usedforsecurity=False).hexdigest()

_encode = msgspec.msgpack.Encoder().encode

_LONG, _LONG_HEADER = 0xDC, 3
"""How MessagePack begins a list of more than fifteen."""
_UNLIMITED = (0, 0, -1)  # tokens a minute, requests a minute, at once
_GRANTED = 0x31
_NOW, _STEPS, _SUBJECTS = 3, 4, 13
_SUBJECT, _RECORD = 6, 3
_OF_TENANT, _OF_SUBJECT = (8, 10, 12), (0, 3, 5)
_MOST_SEEN = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """Which step of its tenant this was, and when, in the tenant's time: steps can be put into their order afterwards."""

    number: int
    now_ms: int


@cache
def _layout(numbers: int) -> Struct:
    """So many doubles; an answer has some dozens."""
    return Struct(f"<{numbers}d")


class RedisLimiter:
    """``last_step``: the newest answer's place among its tenant's, for who compares many processes' answers."""

    def __init__(self, link: RedisLink, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._seen: dict[TenantId, tuple[int, float]] = {}
        self._last: Sequence[float] = (0.0,) * _SUBJECTS

    @staticmethod
    def connect(url: str, clock: Clock) -> RedisLimiter:
        """For ``redis[s]://[user:password@]host[:port][/db]``. Connects at the first call."""
        return RedisLimiter(RedisLink(RedisAddress.parse(url)), clock)

    @property
    def last_step(self) -> Step:
        return Step(int(self._last[_STEPS]), int(self._last[_NOW]))

    async def reserve(self, reservation: Reservation) -> Verdict:
        demand = Demand(reservation.limits)
        granted, answer = await self._run(reservation.tenant_id, "reserve", words_of(reservation, demand))
        return Granted(demand.standings(answer)) if granted else demand.refusal(answer)

    async def renew(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        return (await self._run(tenant_id, "renew", (generation_id,)))[0]

    async def reconcile(self, outcome: Outcome) -> bool:
        return (await self._run(outcome.tenant_id, "reconcile", words_of(outcome, Demand(outcome.limits))))[0]

    async def release(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        return (await self._run(tenant_id, "release", (generation_id,)))[0]

    async def standings(self, tenant_id: TenantId, limits: Sequence[Limit]) -> tuple[Standing, ...]:
        demand = Demand(limits)
        _, answer = await self._run(tenant_id, "standings", ("", 0, 0, 1, demand.left_ms, demand.packed))
        return tuple(demand.standings(answer))

    async def close(self) -> None:
        await self._link.close()

    async def _run(self, tenant_id: TenantId, step: str, words: tuple[Word, ...]) -> tuple[bool, Sequence[float]]:
        """What a step says: whether it was done, and the numbers that ``Demand`` reads."""
        asked_at, prefix = self._clock.monotonic(), prefix_of(tenant_id)
        seen = self._seen.get(tenant_id)
        seen_ms, since_ms = (0, 0) if seen is None else (seen[0], int(1000 * (asked_at - seen[1])))
        try:
            try:
                answer = await self._link.call("EVALSHA", _SHA1, 1, prefix, step, seen_ms, since_ms, *words)
            except RedisRefusal as refusal:
                if not str(refusal).startswith("NOSCRIPT"):
                    raise
                # A restarted Redis, or another one after a failover.
                answer = await self._link.call("EVAL", SCRIPT, 1, prefix, step, seen_ms, since_ms, *words)
        except (RedisLost, RedisRefusal) as error:
            raise StoreUnavailable("The limits cannot be read now.", retry_after_ms=1000) from error
        packed = cast("bytes", answer)
        self._last = numbers = _layout(len(packed) // 8).unpack_from(packed, 1)
        if seen is None and len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[tenant_id] = int(numbers[_NOW]), asked_at
        return packed[0] == _GRANTED, numbers


def prefix_of(tenant_id: TenantId) -> str:
    """What all keys of a tenant's limits begin with."""
    return f"antiphon:{{{tenant_id}}}:limit:"


def words_of(asked: Reservation | Outcome, demand: Demand) -> tuple[str, int, int, int, int, bytes]:
    """The generation, its amounts and its limits, as the script reads them."""
    counts = int(asked.counts) if isinstance(asked, Outcome) else 1
    return asked.generation_id, asked.tokens, asked.cost_nanos, counts, demand.left_ms, demand.packed


class Demand:
    """Limits as the script reads them, a subject's together, and what its answer says of them.

    ``packed``: MessagePack; ``left_ms``: what is left of the budgets' period.
    """

    __slots__ = ("_limits", "_places", "_subjects", "left_ms", "packed")

    def __init__(self, limits: Sequence[Limit]) -> None:
        subjects: dict[str, int] = {"tenant": 0}
        rates: list[Word] = [*_UNLIMITED]
        caps: list[tuple[int, Cap]] = []
        budgets: list[tuple[int, Budget]] = []
        places = [0] * len(limits)
        for number, limit in enumerate(limits):
            if isinstance(limit, Cap):
                caps.append((number, limit))
            elif isinstance(limit, Budget):
                budgets.append((number, limit))
            else:
                subject = subjects.setdefault(limit.subject, len(subjects))
                if 3 * subject == len(rates):
                    rates += _UNLIMITED
                if isinstance(limit, Concurrency):
                    kind, most = 2, limit.most
                else:
                    kind, most = int(limit.measure is Measure.REQUESTS), limit.per_minute
                rates[3 * subject + kind] = most
                places[number] = _SUBJECTS + _SUBJECT * (subject - 1) + _OF_SUBJECT[kind] if subject else _OF_TENANT[kind]
        del subjects["tenant"]
        names: list[Word] = [len(subjects), len(budgets), len(caps), *subjects]
        place, self.left_ms = _SUBJECTS + _SUBJECT * len(subjects), 0
        for number, budget in budgets:
            names.append(f"money:{budget.subject}:{budget.period}")
            rates.append(budget.most_nanos)
            self.left_ms = budget.left_ms
            places[number] = place
            place += _RECORD
        for number, cap in caps:
            names.append(f"messages:{cap.subject}:{cap.model}:{cap.window_ms}")
            rates += (cap.most, cap.window_ms)
            places[number] = place
            place += _RECORD
        packed = _encode(names + rates)
        self.packed = packed[_LONG_HEADER if packed[0] == _LONG else 1 :]
        self._limits = limits
        self._places = places
        self._subjects = len(subjects)

    def standings(self, answer: Sequence[float]) -> Sequence[Standing]:
        """Where the limits stand."""
        return _Standings(self._limits, self._places, answer)

    def refusal(self, answer: Sequence[float]) -> Exhausted:
        """What keeps the caller waiting longest; an answer that refuses ends with how long each would."""
        others = _SUBJECTS + _SUBJECT * self._subjects
        rates = 3 * (1 + self._subjects)
        waits_at = others + (len(answer) - others - rates) // (_RECORD + 1) * _RECORD
        waits: list[int] = []
        for place in self._places:
            if place >= others:
                number = rates + (place - others) // _RECORD
            elif place >= _SUBJECTS:
                number = 3 + 3 * ((place - _SUBJECTS) // _SUBJECT) + _OF_SUBJECT.index((place - _SUBJECTS) % _SUBJECT)
            else:
                number = _OF_TENANT.index(place)
            waits.append(int(answer[waits_at + number]))
        longest = max(waits)
        return Exhausted(self._limits[waits.index(longest)], longest, self.standings(answer))


class _Standings(Sequence[Standing]):
    """Made as they are read: a turn tells two of its seven."""

    __slots__ = ("_limits", "_numbers", "_places")

    def __init__(self, limits: Sequence[Limit], places: Sequence[int], numbers: Sequence[float]) -> None:
        self._limits = limits
        self._places = places
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._limits)

    @overload
    def __getitem__(self, index: int) -> Standing: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Standing, ...]: ...

    def __getitem__(self, index: int | slice) -> Standing | tuple[Standing, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        limit, place, numbers = self._limits[index], self._places[index], self._numbers
        value = numbers[place]
        if isinstance(limit, Rate):  # whole numbers all of them, which doubles hold exactly
            parts = value - (numbers[_NOW] - numbers[place + 1]) * limit.per_minute
            if parts <= 0:
                return Standing(limit, 0, 0)
            return Standing(limit, int(-(-parts // PARTS)), int(-(-parts // limit.per_minute)))
        if isinstance(limit, Cap):
            return Standing(limit, int(value), int(numbers[place + 1] + limit.window_ms - numbers[_NOW]) if value else 0)
        return Standing(limit, int(value), limit.left_ms if isinstance(limit, Budget) else 0)
