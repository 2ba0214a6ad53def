"""Whether a pool's replicas can be waited for, and about how long until one answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.inference.fleet import ReplicaLedger

_SHORT_PAUSE_S = 5.0
"""A replica that failed and will be tried again within so long is waited for."""


@dataclass(frozen=True, slots=True)
class Availability:
    """``available`` is also true while a replica that worked is being restarted, or a model is loaded on demand, which takes
    ``opening_s``. ``on_demand``: it is that a model is not in memory, and whoever wants it waits for its load.
    """

    available: bool = True
    opening_s: float = 0.0
    on_demand: bool = False


HERE = Availability()


@dataclass(frozen=True, slots=True)
class ReplicaOutlook:
    """One replica: whether it is ready or was and is being started again, and how long until it may be ready."""

    worked: bool
    opening_s: float
    ledger: ReplicaLedger


def availability_of(replicas: Sequence[ReplicaOutlook], now: float) -> Availability:
    """Of all of a pool's replicas together."""
    usable = any(one.worked and one.ledger.breaker.opens_in_s(now) <= _SHORT_PAUSE_S for one in replicas)
    opening = (max(one.opening_s, one.ledger.breaker.opens_in_s(now)) for one in replicas)
    return Availability(usable, min(opening, default=0.0))
