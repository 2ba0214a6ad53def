"""When those that wait will have their first token: the queue, played forward. Pure.

Sequences end when their expected tokens are written, which frees their blocks and rows for the next in line; a step takes
what the replica's own step-time model says. Arrivals of higher bands, which will go before those that wait now, are played
too, at the rate at which they have come lately. One run answers for the whole line: O((rows + line + arrivals) · log rows).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from antiphon.core.tenancy import Band
from antiphon.inference.ask import Demand
from antiphon.inference.band_shares import BAND_SHARE

HORIZON_S = 40.0
"""Beyond this nothing is played any more; who has not started by then is told the horizon."""
_FIRST_STEP_MS = (14.0, 0.45, 0.5, 0.0021)
_MOST_ARRIVALS = 400


@dataclass(frozen=True, slots=True)
class Serving:
    """A pool's replicas as one. ``step_ms`` as in a replica's snapshot; ``running`` holds, for each sequence, the tokens it
    will still write and those it is expected to hold at its end.
    """

    replicas: int
    tokens: int
    free_tokens: int
    free_rows: int
    running: Sequence[tuple[float, int]]
    step_ms: tuple[float, ...] = ()
    prefill_tokens: int = 0
    """Prompts that were sent and are not computed yet."""
    headroom: Mapping[Band, tuple[int, int]] = field(default_factory=dict[Band, tuple[int, int]])
    """Rows and tokens that a band leaves to higher ones."""
    block_tokens: int = 1
    """Each holds whole blocks of so many."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One in line: ``probe`` asks for a time and takes no room."""

    demand: Demand
    band: Band
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests of ``band`` that are going to come: ``per_s`` a second, each wanting ``demand``."""

    band: Band
    per_s: float
    demand: Demand


def forecast(serving: Serving, line: Sequence[Expected], arrivals: Sequence[Arrivals] = ()) -> list[float]:
    """Seconds until the first token of each in ``line``, which is in order of service."""
    play = _Play(serving, arrivals)
    return [play.start(one) for one in line]


def emptied_s(serving: Serving) -> float:
    """Seconds until all that runs now has ended, if nobody came any more."""
    return _Play(serving, ()).empty()


class _Play:
    def __init__(self, serving: Serving, arrivals: Sequence[Arrivals]) -> None:
        coefficients = serving.step_ms if len(serving.step_ms) >= len(_FIRST_STEP_MS) else _FIRST_STEP_MS
        self._step_ms, self._row_ms, self._prefill_ms, self._context_ms = coefficients[:4]
        self._replicas = max(serving.replicas, 1)
        self._headroom = serving.headroom
        self._free_tokens, self._free_rows = float(serving.free_tokens), serving.free_rows
        self._now_s = serving.prefill_tokens * self._prefill_ms / 1000 / self._replicas
        self._step = 0.0
        self._block = serving.block_tokens
        expected = sum(self._whole(tokens) for _, tokens in serving.running)
        self._held = float(max(serving.tokens - serving.free_tokens, 0))
        # What the replicas really hold is known in all; single sequences are known by what they are expected to hold.
        self._share = min(self._held / expected, 1.0) if expected and self._held else 1.0
        self._running = [(left, self._whole(tokens) * self._share) for left, tokens in serving.running]
        heapq.heapify(self._running)
        self._arrivals = sorted((one for one in arrivals if one.per_s > 0), key=lambda one: -one.band)
        self._due = [1 / one.per_s for one in self._arrivals]
        self._owed = dict.fromkeys(Band, 0.0)
        self._played = 0

    def start(self, one: Expected) -> float:
        """Play until ``one`` has its first token."""
        while self._now_s < HORIZON_S:
            before = self._next_arrival(one)
            if before is None:
                demand, band = one.demand, Band.HIGH if self._owed[one.band] >= one.demand.tokens else one.band
            else:
                demand, band = self._arrivals[before].demand, self._arrivals[before].band
            if not self._fits(demand, band):
                self._end_one()
            elif before is not None:
                self._due[before] += 1 / self._arrivals[before].per_s
                self._played += 1
                self._owed[one.band] += BAND_SHARE[one.band] * demand.tokens
                self._begin(demand)
            elif one.probe:
                return self._now_s + self._prefill_s(demand) + self._step_s()
            else:
                self._owed[one.band] = max(self._owed[one.band] - demand.tokens, 0.0)
                self._begin(demand)
                return self._now_s + self._step_s()
        return HORIZON_S

    def empty(self) -> float:
        """Play until nothing runs."""
        while self._running and self._now_s < HORIZON_S:
            self._end_one()
        return min(self._now_s, HORIZON_S)

    def _next_arrival(self, one: Expected) -> int | None:
        """Who has come by now and goes before ``one``, unless its band is owed its share first."""
        if self._played >= _MOST_ARRIVALS or self._owed[one.band] >= one.demand.tokens:
            return None
        for index, due in enumerate(self._due):
            if due <= self._now_s and self._arrivals[index].band > one.band:
                return index
        return None

    def _fits(self, demand: Demand, band: Band) -> bool:
        rows, tokens = self._headroom.get(band, (0, 0))
        return not self._running or (self._free_rows > rows and self._whole(demand.tokens) + tokens <= self._free_tokens)

    def _begin(self, demand: Demand) -> None:
        tokens = self._whole(demand.tokens) * self._share
        self._now_s += self._prefill_s(demand)
        self._free_tokens -= tokens
        self._free_rows -= 1
        self._held += tokens
        heapq.heappush(self._running, (self._step + demand.output_tokens, tokens))

    def _end_one(self) -> None:
        end, tokens = heapq.heappop(self._running)
        self._now_s += max(end - self._step, 0.0) * self._step_s(1)
        self._step = max(end, self._step)
        self._free_tokens += tokens
        self._free_rows += 1
        self._held -= tokens

    def _step_s(self, more_rows: int = 0) -> float:
        """A step as long as things are as they are; a first token comes at the end of one."""
        rows = len(self._running) + more_rows
        return (self._step_ms + (self._row_ms * rows + self._context_ms * self._held) / self._replicas) / 1000

    def _whole(self, tokens: int) -> int:
        return -(-tokens // self._block) * self._block

    def _prefill_s(self, demand: Demand) -> float:
        return demand.prefill_tokens * self._prefill_ms / 1000 / self._replicas
