"""How often requests come, believed as long as it may be true. Pure.

A mean over many seconds is exact while nothing changes and late when something does; a mean over few is the reverse. So the
long mean counts until the short one differs from it by more than chance allows for arrivals at random (the variance of an
exponential mean over ``span`` of a Poisson process of rate λ is λ / 2 span); then what came before is forgotten.
"""

from __future__ import annotations

import math

from antiphon.inference.fleet import RateMeter

_SPAN_S = 10.0
_RECENT_S = 1.0
_DEVIATIONS = 2.5


class ArrivalRate:
    """Of one kind of request. ``add`` each that comes."""

    def __init__(self, now: float) -> None:
        self._long = RateMeter(now, _SPAN_S)
        self._recent = RateMeter(now, _RECENT_S)

    def add(self, now: float) -> None:
        self._long.add(1.0, now)
        self._recent.add(1.0, now)

    def rate(self, now: float) -> float:
        """Requests a second."""
        long, recent = self._long.rate(now), self._recent.rate(now)
        if abs(recent - long) > _DEVIATIONS * math.sqrt((recent + long) / 2 / (2 * _RECENT_S)):
            self._long.forget(now, _RECENT_S, recent)
            return recent
        return long
