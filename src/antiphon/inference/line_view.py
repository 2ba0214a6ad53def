"""The line of a pool at one moment: who would start when, and where a newcomer would stand. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from antiphon.core.tenancy import Band
from antiphon.inference.ask import Demand
from antiphon.inference.wait_forecast import Arrivals, Expected, Serving, forecast
from antiphon.inference.wait_queue import Waiter

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Place:
    """``position`` in the line, from 1, and seconds until the first token."""

    position: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class _BandView:
    """The band's waiters, in order: their tags, positions and waits; then who comes last."""

    tags: list[float]
    places: list[Place]
    end: Place


@dataclass(frozen=True, slots=True)
class LineView(Generic[K]):
    """Made by ``line_view``. Waits count from ``at``."""

    at: float
    order: Sequence[Waiter[K]]
    waits_s: Sequence[float]
    tags: Sequence[float]
    bands: Mapping[Band, _BandView]

    def newcomer(self, band: Band, tag: float) -> Place:
        """Where one of ``band`` would stand that is given ``tag``."""
        view = self.bands[band]
        index = bisect_right(view.tags, tag)
        return view.places[index] if index < len(view.places) else view.end


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else a forecast needs: the replicas, who is going to come, and what a request usually wants."""

    serving: Serving
    arrivals: Sequence[Arrivals]
    typical: Demand


def line_view(
    order: Sequence[tuple[float, Waiter[K]]], ends: Mapping[Band, int], demands: Mapping[K, Demand], around: Surroundings, now: float
) -> LineView[K]:
    """Play ``order``, with its tags, forward. At the end of each band's part, after ``ends`` others, stands a probe with the
    usual demand.
    """
    line: list[Expected] = []
    probes: dict[Band, int] = {}
    for index in range(len(order) + 1):
        for band in sorted(Band, reverse=True):
            if ends[band] == index:
                probes[band] = len(line)
                line.append(Expected(around.typical, band, probe=True))
        if index < len(order):
            waiter = order[index][1]
            line.append(Expected(demands[waiter.key], waiter.band))
    starts = forecast(around.serving, line, around.arrivals)
    waits = [start for start, one in zip(starts, line, strict=True) if not one.probe]
    bands = {band: _band_view(band, order, waits, Place(ends[band] + 1, starts[probes[band]])) for band in Band}
    return LineView(now, [waiter for _, waiter in order], waits, [tag for tag, _ in order], bands)


def _band_view(band: Band, order: Sequence[tuple[float, Waiter[K]]], waits_s: Sequence[float], end: Place) -> _BandView:
    mine = [(tag, Place(position, waits_s[position - 1])) for position, (tag, waiter) in enumerate(order, 1) if waiter.band is band]
    mine.sort(key=lambda one: one[0])
    return _BandView([tag for tag, _ in mine], [place for _, place in mine], end)
