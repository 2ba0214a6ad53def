"""What requests take, as far as it is known beforehand: learned lengths, and who has come lately in each band. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.tenancy import Band
from antiphon.inference.arrival_rate import ArrivalRate
from antiphon.inference.ask import Ask, Demand
from antiphon.inference.length_estimate import LengthEstimator
from antiphon.inference.wait_forecast import Arrivals

_NEWEST = 0.1
_UNKNOWN = Demand(256, 64, 128.0)


@dataclass(slots=True)
class _Arrived:
    """A band's arrivals: how many a second, and what one wants on average."""

    rate: ArrivalRate
    demand: Demand | None = None


class DemandMeter:
    def __init__(self, now: float) -> None:
        self.lengths = LengthEstimator()
        self._arrived = {band: _Arrived(ArrivalRate(now)) for band in Band}

    def expected(self, ask: Ask) -> Demand:
        """What a request is expected to take, with nothing of it cached."""
        estimate = self.lengths.estimate(ask)
        return Demand(ask.prompt_tokens + estimate.long, ask.prompt_tokens, estimate.mean)

    def arrived(self, band: Band, demand: Demand, now: float) -> None:
        """Somebody came who wants ``demand``."""
        arrived = self._arrived[band]
        arrived.rate.add(now)
        old = arrived.demand
        if old is None:
            arrived.demand = demand
            return
        arrived.demand = Demand(
            tokens=round(old.tokens + _NEWEST * (demand.tokens - old.tokens)),
            prefill_tokens=round(old.prefill_tokens + _NEWEST * (demand.prefill_tokens - old.prefill_tokens)),
            output_tokens=old.output_tokens + _NEWEST * (demand.output_tokens - old.output_tokens),
        )

    def arrivals(self, now: float) -> list[Arrivals]:
        """Who is going to come, if all goes on as it has lately."""
        return [
            Arrivals(band, arrived.rate.rate(now), arrived.demand) for band, arrived in self._arrived.items() if arrived.demand is not None
        ]

    @property
    def usual(self) -> Demand:
        """What a request wants on average, by what has come lately."""
        for band in (Band.STANDARD, Band.LOW, Band.HIGH, Band.BATCH):
            demand = self._arrived[band].demand
            if demand is not None:
                return demand
        return _UNKNOWN
