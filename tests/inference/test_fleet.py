from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from antiphon.engines.base import ExecutorShape
from antiphon.inference.fleet import RateMeter, ReplicaLedger, choose
from antiphon.inference.wire import ReplicaReady, ReplicaSnapshot

READY = ReplicaReady(1, ExecutorShape(10, 32, 320, 100, frozenset()), 320, 4)


def snapshot(running: int = 0, unpromised: int = 10, last_handle: int = 0) -> ReplicaSnapshot:
    return ReplicaSnapshot(running, 0, 10, 0, 0, unpromised, last_handle)


@dataclass
class Place:
    ledger: ReplicaLedger = field(default_factory=ReplicaLedger)

    @classmethod
    def with_(cls, state: ReplicaSnapshot) -> Place:
        place = cls()
        place.ledger.open(READY)
        place.ledger.observe(state, 0.0)
        return place


def test_nothing_fits_before_the_first_snapshot() -> None:
    ledger = ReplicaLedger()
    assert not ledger.fits(1)
    ledger.open(READY)
    assert not ledger.fits(1)
    ledger.observe(snapshot())
    assert ledger.fits(1)
    ledger.close()
    assert not ledger.fits(1)


def test_an_empty_replica_takes_anything_and_a_busy_one_what_fits() -> None:
    ledger = Place.with_(snapshot()).ledger
    assert ledger.fits(1000)
    ledger.observe(snapshot(running=1, unpromised=3))
    assert ledger.fits(96)
    assert not ledger.fits(97)


def test_a_burst_between_two_snapshots_cannot_overshoot() -> None:
    ledger = Place.with_(snapshot()).ledger
    ledger.dispatched(1, 200)
    ledger.dispatched(2, 64)
    assert ledger.load == 2
    assert ledger.fits(32)
    assert not ledger.fits(33)
    ledger.observe(snapshot(running=1, unpromised=3, last_handle=1))
    assert ledger.load == 2
    assert not ledger.fits(33)
    ledger.observe(snapshot(running=2, unpromised=5, last_handle=2), 0.0)
    assert ledger.fits(160)


def test_rows_are_bounded() -> None:
    ledger = Place.with_(snapshot(running=3)).ledger
    assert ledger.fits(32)
    ledger.dispatched(1, 32)
    assert not ledger.fits(32)


def test_the_least_loaded_is_chosen_and_ties_go_round() -> None:
    places = [Place.with_(snapshot(running=running)) for running in (1, 0, 0)]
    assert choose(places, 32, 0) == 1
    assert choose(places, 32, 2) == 2
    assert choose([Place.with_(snapshot(running=4))], 32, 0) is None
    assert choose([], 32, 0) is None


def test_a_rate_is_right_from_the_first_second_and_fades() -> None:
    meter = RateMeter(0.0)
    assert meter.rate(0.0) == 0.0
    for tick in range(1, 101):
        meter.add(5, tick / 10)
    assert meter.rate(10.0) == pytest.approx(50, rel=0.05)
    assert meter.rate(40.0) < 1


def test_an_answer_counts_with_what_answers_have_had_lately() -> None:
    state = snapshot(running=1, unpromised=4)
    ledger = Place.with_(state).ledger
    assert not ledger.fits(130, 100)
    ledger.observe(msgspec.structs.replace(state, expected_output=20))
    assert ledger.fits(108 + 100, 100)
    assert not ledger.fits(109 + 100, 100)
    ledger.dispatched(9, 108 + 100, 100)
    assert not ledger.fits(32)
