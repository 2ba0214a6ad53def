from __future__ import annotations

import pytest

from antiphon.core.tenancy import Band
from antiphon.inference.admission import Admit, DrainMeter, PoolView, Queue, Shed, WaitingLine, decide


def view(
    *,
    waiting: int = 0,
    full: bool = False,
    fits_now: bool = True,
    available: bool = True,
    seconds_each: float | None = 0.5,
    standing_s: float = 0.0,
) -> PoolView:
    return PoolView(waiting, waiting, full, fits_now, available, seconds_each, standing_s, opening_s=3.0)


def test_what_fits_is_admitted_unless_somebody_waits() -> None:
    assert decide(view()) == Admit()
    assert decide(view(waiting=3)) == Queue(4, 2000)


def test_what_does_not_fit_waits_with_a_place_and_a_time() -> None:
    assert decide(view(fits_now=False)) == Queue(1, 500)
    assert decide(view(fits_now=False, seconds_each=None)) == Queue(1, None)


def test_a_full_line_sheds_with_the_time_it_takes_to_drain() -> None:
    assert decide(view(waiting=20, full=True)) == Shed("high_demand", 10_000)
    assert decide(view(waiting=20, full=True, seconds_each=None, standing_s=0.2)) == Shed("high_demand", 4_000)
    assert decide(view(waiting=1, full=True)) == Shed("high_demand", 1_000)
    assert decide(view(waiting=500, full=True)) == Shed("high_demand", 60_000)


def test_without_a_replica_there_is_no_capacity() -> None:
    assert decide(view(available=False)) == Shed("no_capacity", 3_000)


def test_the_line_serves_higher_bands_first_and_each_band_in_order() -> None:
    line: WaitingLine[str] = WaitingLine(limit=4)
    for name, band in (("low", Band.LOW), ("one", Band.STANDARD), ("two", Band.STANDARD), ("high", Band.HIGH)):
        assert not line.full
        line.enter(name, band)
    assert list(line) == ["high", "one", "two", "low"]
    assert line.full
    assert line.first == "high"
    assert (line.ahead_of(Band.STANDARD), line.ahead_of(Band.BATCH), line.ahead_of(Band.HIGH)) == (3, 4, 1)
    assert line.leave("one")
    assert not line.leave("one")
    assert (len(line), line.waiting(Band.STANDARD)) == (3, 1)


def test_the_meter_measures_only_while_somebody_waits() -> None:
    meter = DrainMeter()
    assert meter.seconds_each(0.0) is None
    meter.update(0.0, waiting=True, departed=False)
    meter.update(2.0, waiting=True, departed=True)
    assert meter.seconds_each(2.0) == pytest.approx(2.0)
    meter.update(3.0, waiting=False, departed=True)
    assert meter.seconds_each(100.0) == pytest.approx(1.8)
    meter.update(100.0, waiting=True, departed=False)
    assert meter.seconds_each(105.0) == pytest.approx(5.0)
    assert meter.standing_s(105.0) == pytest.approx(5.0)
