"""Everything a pool decides: who is let in, who waits where and for how long, who goes where next. Pure: given ``now``.

The async ``Pool`` acts on it, and so does a simulation: whoever plays requests through these methods plays the gateway.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from antiphon.core.tenancy import Band
from antiphon.inference.admission import Look, output_cap
from antiphon.inference.ask import Ask, Demand
from antiphon.inference.availability import HERE, Availability
from antiphon.inference.demand_meter import DemandMeter
from antiphon.inference.drain import DrainMeter, Pressure, ReturnSlots
from antiphon.inference.fair_share import CACHED_COST, INPUT_COST, OUTPUT_COST
from antiphon.inference.fleet import RateMeter, ReplicaLedger, Room, choose, serving_of
from antiphon.inference.forecast_error import ForecastError
from antiphon.inference.line_view import LineView, Place, Surroundings, line_view
from antiphon.inference.standing import Standing, counted_down, told_now
from antiphon.inference.wait_forecast import HORIZON_S, Serving, emptied_s
from antiphon.inference.wait_queue import Waiter, WaitQueue

K = TypeVar("K", bound=Hashable)

_VIEW_S = 0.5
_CHANGED_VIEW_S = 0.002
"""How old a view of the line may be that something has happened since, for each that waits."""
_RATE_SPAN_S = 10.0
_REFUSED_LATELY_S = 5.0
_TOKENS_A_PLACE = 2048
_TOP_QUANTILE = 0.995
"""Of the highest band so many are to be served within their limit, of the others nine of ten: others make way for it."""


@dataclass(frozen=True, slots=True)
class PoolRules:
    """``queue_limit`` requests may wait, and so many tokens as they have on average at most (``_TOKENS_A_PLACE`` each)."""

    name: str
    model: str
    queue_limit: int = 200
    fair: bool = True


@dataclass(slots=True, eq=False)
class _Run(Generic[K]):
    """One that was sent to a replica."""

    waiter: Waiter[K]
    demand: Demand
    replica: int
    expected_tokens: float
    written_tokens: int = 0


@dataclass(slots=True, eq=False)
class _Wait:
    """What else is known of one that waits: its demand, its prompt's fingerprints, the first forecast it was given."""

    demand: Demand
    fingerprints: tuple[int, ...] = ()
    forecast_s: float | None = None
    """The first forecast of its wait."""


class PoolPolicy(Generic[K]):
    """One pool. ``ledgers`` are its replicas'; whoever hears the replicas keeps them up to date."""

    def __init__(self, rules: PoolRules, ledgers: Sequence[ReplicaLedger], now: float) -> None:
        self.rules = rules
        self._demands = DemandMeter(now)
        self.errors = {band: ForecastError(_TOP_QUANTILE if band is Band.HIGH else 0.9) for band in Band}
        self._ledgers = ledgers
        self._queue: WaitQueue[K] = WaitQueue(fair=rules.fair)
        self._waits: dict[K, _Wait] = {}
        self._runs: dict[K, _Run[K]] = {}
        self._drain = DrainMeter()
        self._turns = {band: DrainMeter() for band in Band}
        """How fast each band's virtual time goes."""
        self._slots = ReturnSlots()
        self._pressure = Pressure()
        self._starts = RateMeter(now, _RATE_SPAN_S)
        self._view: LineView[K] | None = None
        self._changed = False
        self._entered = 0
        self._refused_at = -_REFUSED_LATELY_S
        self._turn = 0

    # --- what others ask ------------------------------------------------------------------------

    @property
    def waiting_count(self) -> int:
        return len(self._queue)

    @property
    def running_count(self) -> int:
        return len(self._runs)

    def waiting(self, band: Band) -> int:
        return self._queue.waiting(band)

    def waits(self, key: K) -> bool:
        return key in self._queue

    def look(self, ask: Ask, now: float, availability: Availability = HERE) -> Look:
        """What a newcomer would meet. Changes nothing but the measure of demand."""
        cap = output_cap(ask, high=self._pressure.high and self._is_shared(ask))
        if cap is not None:
            ask = replace(ask, output_tokens=cap)
        demand = self._demands.expected(ask)
        prefill_s = demand.prefill_tokens * self._prefill_ms / 1000
        room = Room(demand.tokens, demand.prefill_tokens, ask.band)
        here = not availability.on_demand and not self._ahead(ask.band)
        starts_now = here and choose(self._ledgers, [room] * len(self._ledgers), self._turn, now) is not None
        moves = not availability.on_demand
        place = self._newcomer(ask, now, moves=moves) if not starts_now and availability.available else Place(1, prefill_s)
        opening_s = 0.0 if starts_now else availability.opening_s
        queued_s = max(place.wait_s + (opening_s if moves else 0.0) - prefill_s, 0.0)
        if moves and place.wait_s < HORIZON_S:
            place = replace(place, wait_s=min(place.wait_s * self.errors[ask.band].bias, HORIZON_S))
        place = replace(place, wait_s=place.wait_s + opening_s)
        high = self._pressure.update(now, max(place.wait_s - prefill_s, 0.0)) and self._is_shared(ask)
        loads_only = availability.on_demand and not self._queue
        return Look(
            pool=self.rules.name,
            model=self.rules.model,
            available=availability.available,
            opening_s=availability.opening_s,
            on_demand=availability.on_demand,
            starts_now=starts_now,
            full=self.full,
            high=high,
            position=place.position,
            wait_s=place.wait_s,
            prefill_s=prefill_s,
            queued_at_most_s=0.0 if loads_only else self.errors[ask.band].at_most_s(queued_s),
            holds=self._holds(ask),
        )

    @property
    def full(self) -> bool:
        """Whether nobody more may wait, by number or by tokens."""
        limit = self.rules.queue_limit
        return len(self._queue) >= limit or self._queue.tokens >= limit * _TOKENS_A_PLACE

    @property
    def high(self) -> bool:
        """Whether demand is high: newcomers would wait, or would have a moment ago."""
        return self._pressure.high

    def feel(self, now: float) -> None:
        """Notice how demand is, now and then, also while nobody asks."""
        self._pressure.update(now, self.band_wait_s(Band.STANDARD, now))

    def refuses(self, now: float) -> bool:
        """Whether somebody was refused a moment ago, or would be."""
        return self.full or now - self._refused_at < _REFUSED_LATELY_S

    def retry_after_s(self, ask: Ask, look: Look, now: float, name: str) -> float:
        """When somebody who is refused should come back; takes the slot it tells."""
        self._refused_at = now
        # Who is refused for now is why lower bands get no more than they are owed: others like it take what would be left.
        self._demands.arrived(ask.band, self._demands.expected(ask), now)
        soonest_s = max(look.wait_s - ask.wait_limit_s, 0.0)
        rate = self._drain.rate(now) or self._starts.rate(now) or None
        return self._slots.take(ask.band, now, soonest_s=soonest_s, rate=rate, name=name)

    def band_wait_s(self, band: Band, now: float) -> float:
        """What a newcomer of ``band``, with a usual request, would wait until its first token."""
        if not self._queue and self._has_room(band, now):
            return 0.0
        return self.view(now).bands[band].end.wait_s

    # --- a request ------------------------------------------------------------------------------

    def enter(self, key: K, ask: Ask, now: float, *, ready: bool = True, look: Look | None = None) -> None:
        """Let a request wait. One that is not ``ready`` keeps its place until ``attach``. ``look`` is what it was let in on:
        its position and time are told from then on.
        """
        demand = self._demands.expected(ask)
        cost = INPUT_COST * ask.prompt_tokens + OUTPUT_COST * demand.output_tokens
        waiter = self._queue.enter(key, ask, cost=cost, tokens=demand.tokens, now=now, ready=ready)
        wait = self._waits[key] = _Wait(demand)
        if look is not None and not look.starts_now:
            waiter.position, waiter.eta_s, waiter.told_at = look.position, max(look.wait_s - look.opening_s, 0.0), now
            forecast_s = look.wait_s / self.errors[ask.band].bias
            wait.forecast_s = forecast_s if look.wait_s < HORIZON_S and not look.opening_s else None
        self._demands.arrived(ask.band, demand, now)
        self._drain.update(now, waiting=True)
        self._turns[ask.band].update(now, waiting=True)
        self._entered += 1
        self._changed = True

    def attach(self, key: K, ask: Ask, fingerprints: tuple[int, ...] = ()) -> None:
        """What a request that waits really asks, now that its prompt is there; ``fingerprints`` of its whole blocks."""
        waiter, wait = self._queue.get(key), self._waits.get(key)
        if waiter is None or wait is None:
            return
        self.set_band(key, ask.band)
        waiter.ask = replace(waiter.ask, prompt_tokens=ask.prompt_tokens, output_tokens=ask.output_tokens)
        self._queue.come(key)
        wait.fingerprints = fingerprints
        cached = max((ledger.cached_tokens(fingerprints) for ledger in self._ledgers), default=0) if fingerprints else 0
        demand = self._demands.expected(waiter.ask)
        wait.demand = replace(demand, prefill_tokens=max(demand.prefill_tokens - cached, 1))

    def set_band(self, key: K, band: Band) -> None:
        """A request that waits belongs to ``band`` from now on."""
        waiter = self._queue.get(key)
        if waiter is not None and waiter.ask.band is not band:
            self._queue.move(key, replace(waiter.ask, band=band))
            self._changed = True

    def leave(self, key: K, now: float) -> bool:
        """A request that waits goes; ``False`` when it did not wait. Nobody else is touched."""
        gone = self._queue.leave(key)
        if gone is None:
            return False
        del self._waits[key]
        self._drain.update(now, waiting=bool(self._queue))
        self._changed = True
        return True

    def next(self, now: float) -> tuple[K, int] | None:
        """Who starts next, and at which replica; ``started`` follows, or nobody is asked again before something changes."""
        if not self._queue:
            return None
        found: list[int] = []

        def fits(waiter: Waiter[K], band: Band) -> bool:
            chosen = choose(self._ledgers, self._rooms(waiter, band, now), self._turn, now)
            if chosen is not None:
                found.append(chosen)
            return chosen is not None

        waiter = self._queue.pick(now, fits)
        return None if waiter is None else (waiter.key, found[-1])

    def started(self, key: K, replica: int, handle: int, now: float) -> None:
        """It was sent to ``replica`` as ``handle``."""
        waiter = self._queue.get(key)
        assert waiter is not None, "only one that waits can start"
        room = self._rooms(waiter, waiter.band, now)[replica]
        wait = self._waits.pop(key)
        before = self._queue.virtual_time(waiter.band)
        self._queue.start(waiter, now)
        self._turns[waiter.band].update(
            now, waiting=self._queue.occupied(waiter.band), started=self._queue.virtual_time(waiter.band) - before
        )
        self._ledgers[replica].dispatched(handle, room, now)
        demand = replace(wait.demand, prefill_tokens=room.prefill_tokens)
        self._runs[key] = _Run(waiter, demand, replica, demand.output_tokens)
        self._turn = (replica + 1) % len(self._ledgers)
        self._drain.update(now, waiting=bool(self._queue), started=1)
        self._starts.add(1.0, now)
        if wait.forecast_s is not None:
            actual_s = now - waiter.entered_at + room.prefill_tokens * self._prefill_ms / 1000
            self.errors[waiter.ask.band].observe(wait.forecast_s, actual_s)
        self._changed = True

    def progressed(self, key: K, tokens: int) -> None:
        """``tokens`` more of its answer are written."""
        run = self._runs.get(key)
        if run is None:
            return
        run.written_tokens += tokens
        if run.written_tokens >= run.expected_tokens:
            run.expected_tokens = self._demands.lengths.estimate(run.waiter.ask, run.written_tokens).mean

    def ended(self, key: K, *, cut: bool | None = None, computed_tokens: int = 0, cached_tokens: int = 0) -> None:
        """It is at a replica no more. ``cut``: its limit ended it; ``None``: something else did, and its length says nothing.

        ``computed_tokens`` of the prompt were computed and ``cached_tokens`` found. Its tenant is charged what it has cost.
        """
        run = self._runs.pop(key, None)
        if run is None:
            return
        if cut is not None:
            self._demands.lengths.observe(run.waiter.ask, run.written_tokens, cut=cut)
        cost = INPUT_COST * computed_tokens + CACHED_COST * cached_tokens + OUTPUT_COST * run.written_tokens
        self._queue.correct(run.waiter, cost)
        self._changed = True

    # --- honest waiting -------------------------------------------------------------------------

    def standings(self, now: float) -> list[Standing[K]]:
        """What has changed for those that wait since they were told: positions that fall, and rise only when somebody of a
        higher band came; times that count down and are put right gently.
        """
        if not self._queue:
            return []
        if self._changed:
            self._view = None
        view = self.view(now)
        told: list[Standing[K]] = []
        for position, (waiter, wait_s, tag) in enumerate(zip(view.order, view.waits_s, view.tags, strict=True), 1):
            left_s = max(wait_s - (now - view.at), self._turn_s(waiter.band, tag, now), 0.0) * self.errors[waiter.ask.band].bias
            standing = told_now(waiter, self._queue.arrivals_above(waiter.ask.band), position, left_s, now)
            if standing is not None:
                told.append(standing)
        return told

    def standing(self, key: K, now: float) -> Standing[K] | None:
        """What one that waits was told, counted down until now; ``None`` where it does not wait or was told nothing."""
        waiter = self._queue.get(key)
        return None if waiter is None else counted_down(waiter, now)

    def view(self, now: float) -> LineView[K]:
        """The line, played forward; made anew when something has changed, or a moment has passed."""
        view = self._view
        waiting = 0 if view is None else len(view.order)
        oldest_s = min(_CHANGED_VIEW_S * waiting, _VIEW_S) if self._changed else _VIEW_S
        if view is None or now - view.at > oldest_s or self._entered > waiting // 16:
            self._changed, self._entered = False, 0
            order, ends = self._queue.order_and_ends(now, self._demands.usual.tokens)
            around = Surroundings(self._serving, self._demands.arrivals(now), self._demands.usual)
            demands = {key: wait.demand for key, wait in self._waits.items()}
            view = self._view = line_view(order, ends, demands, around, now)
        return view

    def emptied_s(self) -> float:
        """About how long until all that runs has ended."""
        return emptied_s(self._serving)

    def check(self) -> None:
        """Raise ``AssertionError`` unless queue, waits and runs agree."""
        self._queue.check()
        assert self._waits.keys() == {waiter.key for _, waiter in self._queue.order(0.0)}
        assert not self._waits.keys() & self._runs.keys()

    # --- inside ---------------------------------------------------------------------------------

    def _newcomer(self, ask: Ask, now: float, *, moves: bool) -> Place:
        """Where one would stand, as it is played. Those who came since the line was viewed stand before it too. Where nothing
        ``moves`` before the model is loaded, no pace is asked.

        Nobody is told more than the horizon: the pace of a pool that stood still says nothing about the time after.
        """
        view = self.view(now)
        place = view.newcomer(ask.band, self._queue.tag(ask))
        if not moves:
            return Place(place.position + self._entered, place.wait_s)
        rate = self._drain.rate(now) or self._starts.rate(now)
        since_s = self._entered / rate if rate else 0.0
        wait_s = max(place.wait_s + since_s - (now - view.at), self._turn_s(ask.band, self._queue.tag(ask), now), 0.0)
        return Place(place.position + self._entered, min(wait_s, max(place.wait_s, HORIZON_S)))

    def _turn_s(self, band: Band, tag: float, now: float) -> float:
        """Seconds until the band's turns have come to ``tag``, at the pace at which they have gone lately: others of the band
        will come, and be before it.
        """
        rate = self._turns[band].rate(now)
        return (tag - self._queue.virtual_time(band)) / rate if rate else 0.0

    def _rooms(self, waiter: Waiter[K], band: Band, now: float) -> list[Room]:
        """What it wants of each replica: less where its beginning is cached."""
        wait = self._waits[waiter.key]
        prompt_tokens, kept_tokens = waiter.ask.prompt_tokens, self._queue.coming_tokens(band, now)
        rooms: list[Room] = []
        for ledger in self._ledgers:
            cached = min(ledger.cached_tokens(wait.fingerprints), prompt_tokens - 1) if wait.fingerprints else 0
            rooms.append(Room(max(waiter.tokens - cached, 1), max(prompt_tokens - cached, 1), band, kept_tokens))
        return rooms

    def _ahead(self, band: Band) -> bool:
        """Whether anybody waits who would go before, or share with, a newcomer of ``band``."""
        return any(self._queue.waiting(other) for other in Band if other >= band) if self._queue else False

    def _is_shared(self, ask: Ask) -> bool:
        """Whether anybody else is served or waits. Who is alone has nothing to give way to, however long the last wait was."""
        user = (ask.tenant, ask.user)
        waiters = (self._queue.get(key) for key in self._waits)
        asks = [waiter.ask for waiter in (*(run.waiter for run in self._runs.values()), *waiters) if waiter is not None]
        return any((other.tenant, other.user) != user for other in asks)

    def _has_room(self, band: Band, now: float) -> bool:
        room = Room(self._demands.usual.tokens, 1, band)
        return choose(self._ledgers, [room] * len(self._ledgers), 0, now) is not None

    def _holds(self, ask: Ask) -> bool:
        contexts = [ledger.ready.context_tokens for ledger in self._ledgers if ledger.ready is not None]
        return not contexts or ask.prompt_tokens < max(contexts)

    @property
    def _serving(self) -> Serving:
        running = [(max(run.expected_tokens - run.written_tokens, 1.0), run.demand.tokens) for run in self._runs.values()]
        return serving_of(self._ledgers, running)

    @property
    def _prefill_ms(self) -> float:
        for ledger in self._ledgers:
            if ledger.snapshot is not None and len(ledger.snapshot.step_ms) > 2:
                return ledger.snapshot.step_ms[2]
        return 0.5
