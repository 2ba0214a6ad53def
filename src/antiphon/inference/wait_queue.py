"""In which order those that wait are served. Pure: deterministic, given ``now``.

Bands first: a higher one goes before all lower ones, but for the part that each is owed (``band_shares``). Who waits twice
as long as its plan's limit is lifted by a band, so that nobody who was accepted starves; what is in the background rises to
``LOW`` at most. Organisations with reserved tokens go before all bands until their reserve is used up.

Inside a band tenants, and inside a tenant its users, take turns by token cost, as the virtual token counter does (Sheng et
al., OSDI 2024). Each arrival is given its place at once, as a start tag of start-time fair queueing (Goyal et al., SIGCOMM
1996): the later of the band's virtual time and the end of its tenant's last request. So a place that was told stays true:
whoever waits with nothing of its own before it is overtaken by no later arrival of its band. The expected answer is charged
on arrival, since many answers run at once; what it has really cost moves the tenant's later places, never its next one.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from antiphon.core.tenancy import Band
from antiphon.inference.ask import Ask
from antiphon.inference.band_shares import BandShares, order_of_bands
from antiphon.inference.reserve import Reserves
from antiphon.inference.virtual_clock import MOST_IDLE, VirtualClock

MOST_PASSES = 2
"""How often others may go before a request that does not fit; then all of its band and below wait until it does."""
_OWED_PASSES = 1
"""The same for one whose band is owed its share: room is kept for it at once."""
_AGEING_LIMITS = 2.0
"""How many of its plan's limits a request waits before it is lifted by a band."""
_MOST_CANDIDATES = 32
_COMING_S = 1.0
"""For so long room is kept for a request that was let in and is not ready yet: others of lower bands leave it."""

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, eq=False)
class Waiter(Generic[K]):
    """One request in the queue. ``cost`` is what it is charged; ``tokens`` is what it will hold.

    ``band`` is where it waits now, ``ask.band`` where it belongs. ``ready``: it may be started.
    """

    key: K
    ask: Ask
    cost: float
    tokens: int
    entered_at: float
    number: int
    band: Band
    ready: bool = True
    user_tag: float = 0.0
    passed_over: int = 0
    position: int = 0
    """What its reader was told last; 0: nothing yet."""
    eta_s: float = 0.0
    told_at: float = 0.0
    seen_above: int = 0
    """How many of higher bands had come when it was told its position."""

    @property
    def charge(self) -> float:
        return self.cost / self.ask.weight

    @property
    def turn(self) -> tuple[float, int]:
        """Among the requests of its tenant."""
        return self.user_tag, self.number


@dataclass(slots=True, eq=False)
class _Tenant(Generic[K]):
    """One tenant's part of a band's line: its turns, as tags, and who takes them, both in order."""

    turns: list[float] = field(default_factory=list[float])
    line: list[Waiter[K]] = field(default_factory=list["Waiter[K]"])
    users: VirtualClock = field(default_factory=VirtualClock)

    @property
    def sharers(self) -> int:
        """Users that have something waiting."""
        return len({waiter.ask.user for waiter in self.line})

    def move_user(self, user: str, more: float) -> None:
        """Let a user's requests, all but the next, come so much later."""
        theirs = [waiter for waiter in self.line if waiter.ask.user == user]
        for waiter in theirs[1:]:
            waiter.user_tag = max(waiter.user_tag + more, theirs[0].user_tag)
        self.line.sort(key=lambda waiter: waiter.turn)


@dataclass(slots=True, eq=False)
class _Line(Generic[K]):
    """One band's."""

    tenants: dict[str, _Tenant[K]] = field(default_factory=dict[str, "_Tenant[K]"])
    clock: VirtualClock = field(default_factory=VirtualClock)
    waiting: int = 0

    @property
    def sharers(self) -> int:
        """Tenants that have something waiting."""
        return sum(1 for tenant in self.tenants.values() if tenant.line)

    @property
    def first_turn(self) -> float:
        """The tag of whose turn it is; somebody waits."""
        return min(tenant.turns[0] for tenant in self.tenants.values() if tenant.line)

    def heads(self) -> list[tuple[float, int, _Tenant[K]]]:
        """Tenants that have something waiting, whose turn it is first."""
        return sorted((tenant.turns[0], tenant.line[0].number, tenant) for tenant in self.tenants.values() if tenant.line)

    def order(self) -> list[tuple[float, int, Waiter[K]]]:
        """All that wait, with their tags."""
        return sorted(
            (tag, waiter.number, waiter) for tenant in self.tenants.values() for tag, waiter in zip(tenant.turns, tenant.line, strict=True)
        )


class WaitQueue(Generic[K]):
    """``fair = False`` is plain order of arrival inside a band: what fairness is measured against."""

    def __init__(self, *, fair: bool = True) -> None:
        self._fair = fair
        self._lines: dict[Band, _Line[K]] = {band: _Line() for band in sorted(Band, reverse=True)}
        self._waiters: dict[K, Waiter[K]] = {}
        self._ageing: list[tuple[float, int, Waiter[K]]] = []
        self._reserves = Reserves()
        self._shares = BandShares()
        self._arrivals = dict.fromkeys(Band, 0)
        self._belonging = dict.fromkeys(Band, 0)
        self._numbers = 0
        self._coming: dict[K, Waiter[K]] = {}
        self.tokens = 0
        """What all that wait will hold together."""

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, key: K) -> bool:
        return key in self._waiters

    def get(self, key: K) -> Waiter[K] | None:
        return self._waiters.get(key)

    def waiting(self, band: Band) -> int:
        """How many belong to ``band``."""
        return self._belonging[band]

    def occupied(self, band: Band) -> bool:
        """Whether anybody waits in the band's line now."""
        return self._lines[band].waiting > 0

    def arrivals_above(self, band: Band) -> int:
        """How many requests of higher bands have ever come."""
        return sum(count for other, count in self._arrivals.items() if other > band)

    # --- coming and going -----------------------------------------------------------------------

    def enter(self, key: K, ask: Ask, *, cost: float, tokens: int, now: float, ready: bool = True) -> Waiter[K]:
        """Put a request in line; ``key`` must not be there. Never refuses: what is let in was decided before."""
        assert key not in self._waiters, "it waits already"
        self._numbers += 1
        waiter = Waiter(key, ask, cost, tokens, now, self._numbers, ask.band, ready)
        self._waiters[key] = waiter
        if not ready:
            self._coming[key] = waiter
        self.tokens += tokens
        self._reserves.know(ask.tenant, ask.reserved_tokens_per_s, now)
        self._arrivals[ask.band] += 1
        self._belonging[ask.band] += 1
        waiter.seen_above = self.arrivals_above(ask.band)
        self._put(waiter)
        heapq.heappush(self._ageing, (now + _AGEING_LIMITS * ask.wait_limit_s, waiter.number, waiter))
        return waiter

    def leave(self, key: K) -> Waiter[K] | None:
        """It waits no longer, and was not served; those of its own tenant move up, nobody else's place changes but for the gap.

        ``None``: it did not wait.
        """
        waiter = self._remove(key)
        if waiter is not None:
            self._lines[waiter.band].clock.correct(waiter.ask.tenant if self._fair else "", -waiter.charge)
        return waiter

    def move(self, key: K, ask: Ask) -> None:
        """It belongs to ``ask.band`` from now on, last in its line there."""
        waiter = self._waiters[key]
        self._take(waiter)
        self._belonging[waiter.ask.band] -= 1
        self._belonging[ask.band] += 1
        waiter.ask, waiter.band = ask, ask.band
        self._numbers += 1
        waiter.number = self._numbers
        self._put(waiter)

    def come(self, key: K) -> None:
        """It is ready from now on."""
        self._waiters[key].ready = True
        self._coming.pop(key, None)

    def coming_tokens(self, band: Band, now: float) -> int:
        """What those of higher bands will hold that were let in a moment ago and are not ready yet."""
        return sum(one.tokens for one in self._coming.values() if one.band > band and now - one.entered_at < _COMING_S)

    def start(self, waiter: Waiter[K], now: float) -> None:
        """It leaves for a replica."""
        line = self._lines[waiter.band]
        tenant = line.tenants[waiter.ask.tenant if self._fair else ""]
        line.clock.start(line.first_turn, waiter.charge, line.sharers)
        tenant.users.start(tenant.line[0].user_tag, waiter.charge, tenant.sharers)
        self._shares.served(waiter.band, waiter.tokens, frozenset(band for band, other in self._lines.items() if other.waiting))
        self._remove(waiter.key, turn=0)
        self._reserves.spend(waiter.ask.tenant, waiter.tokens, now)

    def correct(self, waiter: Waiter[K], cost: float) -> None:
        """What it has really cost, instead of what was charged. The next turn of its tenant stays, and its user's next inside that;
        those behind them move: who has many waiting pays before the last of them.
        """
        line = self._lines[waiter.band]
        more = (cost - waiter.cost) / waiter.ask.weight
        line.clock.settle(waiter.ask.tenant, more, line.sharers)
        tenant = line.tenants.get(waiter.ask.tenant)
        if tenant is not None:
            tenant.users.settle(waiter.ask.user, more, tenant.sharers)
            tenant.turns[1:] = [max(turn + more, tenant.turns[0]) for turn in tenant.turns[1:]]
            tenant.move_user(waiter.ask.user, more)

    # --- who is next ----------------------------------------------------------------------------

    def pick(self, now: float, fits: Callable[[Waiter[K], Band], bool]) -> Waiter[K] | None:
        """Who goes next, of those that are ready and fit; those passed over remember it. Takes nobody out.

        ``fits`` is asked with the band whose room a request may use: its own, or the highest where its band is owed its share.
        """
        self.age(now)
        passed: list[Waiter[K]] = []
        closed: Band | None = None
        for tested, (waiter, room) in enumerate(self._heads(now)):
            if tested >= _MOST_CANDIDATES or (closed is not None and room <= closed):
                return None
            if fits(waiter, room):
                for other in passed:
                    other.passed_over += 1
                return waiter
            passed.append(waiter)
            if waiter.passed_over >= (MOST_PASSES if room is waiter.band else _OWED_PASSES):
                closed = room
        return None

    def order(self, now: float) -> list[tuple[float, Waiter[K]]]:
        """All that wait, in the order in which they would start if nobody came any more, with their tags."""
        return self.order_and_ends(now, 0)[0]

    def order_and_ends(self, now: float, newcomer_tokens: int) -> tuple[list[tuple[float, Waiter[K]]], dict[Band, int]]:
        """``order``, and how many go before one of ``newcomer_tokens`` who comes last in each band."""
        self.age(now)
        lines = {band: [(waiter.tokens, (tag, waiter)) for tag, _, waiter in line.order()] for band, line in self._lines.items()}
        found, before = order_of_bands(lines, self._shares, newcomer_tokens)
        ahead = self._reserved(found, now)
        if not ahead:
            return found, before
        before = {band: count + sum(number >= count for number in ahead) for band, count in before.items()}
        return [found[number] for number in ahead] + [one for number, one in enumerate(found) if number not in ahead], before

    def age(self, now: float) -> None:
        """Lift those that have waited long enough."""
        while self._ageing and self._ageing[0][0] <= now:
            _, _, waiter = heapq.heappop(self._ageing)
            highest = Band.LOW if waiter.ask.band is Band.BATCH else Band.HIGH
            if self._waiters.get(waiter.key) is waiter and waiter.band < highest:
                self._take(waiter)
                waiter.band = Band(waiter.band + 1)
                self._put(waiter)
                heapq.heappush(self._ageing, (now + _AGEING_LIMITS * waiter.ask.wait_limit_s, waiter.number, waiter))

    def tag(self, ask: Ask) -> float:
        """The place that a newcomer of ``ask`` would be given in its band: the last of its tenant's, or, where its user's turn
        comes before others', just before that of whom it moves back.
        """
        line = self._lines[ask.band]
        name, user = (ask.tenant, ask.user) if self._fair else ("", "")
        tenant = line.tenants.get(name)
        if tenant is not None:
            index = bisect_right(tenant.line, tenant.users.tag(user), key=lambda other: other.user_tag)
            if index < len(tenant.line):
                return math.nextafter(tenant.turns[index], -math.inf)
        return line.clock.tag(name)

    def virtual_time(self, band: Band) -> float:
        """How far the band's turns have come: a place is served about when this reaches its tag."""
        return self._lines[band].clock.now

    def check(self) -> None:
        """Raise ``AssertionError`` unless counts, lines and sums agree."""
        there: list[int] = []
        for band, line in self._lines.items():
            assert line.waiting == sum(len(tenant.line) for tenant in line.tenants.values())
            for tenant in line.tenants.values():
                assert len(tenant.turns) == len(tenant.line)
                assert tenant.turns == sorted(tenant.turns)
                assert tenant.line == sorted(tenant.line, key=lambda waiter: waiter.turn)
                assert all(waiter.band is band for waiter in tenant.line)
                there += [waiter.number for waiter in tenant.line]
        assert sorted(there) == sorted(waiter.number for waiter in self._waiters.values())
        assert self.tokens == sum(waiter.tokens for waiter in self._waiters.values())
        assert self._coming == {key: waiter for key, waiter in self._waiters.items() if not waiter.ready}
        for band in Band:
            assert self._belonging[band] == sum(waiter.ask.band is band for waiter in self._waiters.values())

    # --- inside ---------------------------------------------------------------------------------

    def _put(self, waiter: Waiter[K]) -> None:
        line = self._lines[waiter.band]
        name, user = (waiter.ask.tenant, waiter.ask.user) if self._fair else ("", "")
        tenant = line.tenants.get(name)
        if tenant is None:
            if len(line.tenants) >= MOST_IDLE:
                line.tenants = {other: one for other, one in line.tenants.items() if one.line}
            tenant = line.tenants[name] = _Tenant()
        charge = waiter.charge if self._fair and waiter.band <= waiter.ask.band else 0.0
        insort(tenant.turns, line.clock.extend(name, charge) if charge else line.clock.now)
        waiter.user_tag = tenant.users.extend(user, charge)
        insort(tenant.line, waiter, key=lambda other: other.turn)
        line.waiting += 1

    def _take(self, waiter: Waiter[K], turn: int = -1) -> None:
        """Out of its line, and a turn of its tenant's with it: the first when it was served, else the last, so that the
        tenant's others move up.
        """
        line = self._lines[waiter.band]
        tenant = line.tenants[waiter.ask.tenant if self._fair else ""]
        tenant.line.remove(waiter)
        tenant.turns.pop(turn)
        line.waiting -= 1
        if not tenant.line:
            tenant.users.rest()
        if not line.waiting:
            line.clock.rest()

    def _remove(self, key: K, turn: int = -1) -> Waiter[K] | None:
        waiter = self._waiters.pop(key, None)
        self._coming.pop(key, None)
        if waiter is not None:
            self.tokens -= waiter.tokens
            self._belonging[waiter.ask.band] -= 1
            self._take(waiter, turn)
        return waiter

    def _reserved(self, found: Sequence[tuple[float, Waiter[K]]], now: float) -> dict[int, None]:
        """Which of ``found`` go before all others, for what their tenants have left of their reserves."""
        left = self._reserves.levels(now)
        ahead: dict[int, None] = {}
        for number, (_, waiter) in enumerate(found) if left else ():
            tenant = waiter.ask.tenant
            if left.get(tenant, 0.0) > 0:
                ahead[number] = None
            if tenant in left:
                left[tenant] -= waiter.tokens
        return ahead

    def _heads(self, now: float) -> Iterator[tuple[Waiter[K], Band]]:
        """Every tenant's first request that is ready, who goes first first, with whose room it may use."""
        seen: set[int] = set()
        for name in self._reserves.ahead(now):
            for line in self._lines.values():
                tenant = line.tenants.get(name)
                head = None if tenant is None else _first_ready(tenant)
                if head is not None:
                    seen.add(head.number)
                    yield head, Band.HIGH
                    break
        for line, room in self._lines_first():
            for _, _, tenant in line.heads():
                head = _first_ready(tenant)
                if head is not None and head.number not in seen:
                    yield head, room

    def _lines_first(self) -> list[tuple[_Line[K], Band]]:
        """Bands that have something waiting, those that are owed their share first; with whose room they may use."""
        occupied = [(band, line) for band, line in self._lines.items() if line.waiting]
        if len(occupied) == 1:
            return [(line, band) for band, line in occupied]
        owed = [band for band, line in occupied if self._shares.owes(band, line.heads()[0][2].line[0].tokens)]
        return [
            *((line, Band.HIGH) for band, line in occupied if band in owed),
            *((line, band) for band, line in occupied if band not in owed),
        ]


def _first_ready(tenant: _Tenant[K]) -> Waiter[K] | None:
    return next((waiter for waiter in tenant.line if waiter.ready), None)
