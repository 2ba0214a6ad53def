from __future__ import annotations

import pytest

from antiphon.core.tenancy import Band
from antiphon.engines.base import ExecutorShape
from antiphon.inference.ask import Demand
from antiphon.inference.fleet import RateMeter, ReplicaLedger, Room, choose, serving_of
from antiphon.inference.prefix_cache import prompt_fingerprints
from antiphon.inference.wait_forecast import Expected, forecast
from antiphon.inference.wire import ReplicaReady, ReplicaSnapshot

READY = ReplicaReady(1, ExecutorShape(10, 32, 320, 100, frozenset()), 320, 4)


def snapshot(running: int = 0, unpromised: int = 10, last_handle: int = 0, waiting: int = 0) -> ReplicaSnapshot:
    return ReplicaSnapshot(running, waiting, 10, 0, 0, unpromised, last_handle)


def ledger(state: ReplicaSnapshot, ready: ReplicaReady = READY) -> ReplicaLedger:
    made = ReplicaLedger()
    made.open(ready)
    made.observe(state, 0.0)
    return made


def room(tokens: int, band: Band = Band.HIGH) -> Room:
    return Room(tokens, tokens, band)


def test_nothing_fits_before_the_first_snapshot() -> None:
    fresh = ReplicaLedger()
    assert not fresh.fits(room(1), 0.0)
    fresh.open(READY)
    assert not fresh.fits(room(1), 0.0)
    fresh.observe(snapshot(), 0.0)
    assert fresh.fits(room(1), 0.0)
    fresh.close()
    assert not fresh.fits(room(1), 0.0)


def test_an_empty_replica_takes_anything_and_a_busy_one_what_fits() -> None:
    assert ledger(snapshot()).fits(room(1000), 0.0)
    busy = ledger(snapshot(running=1, unpromised=3))
    assert busy.fits(room(96), 0.0)
    assert not busy.fits(room(97), 0.0)


def test_a_replica_that_is_away_is_forecast_as_it_was_and_one_that_never_was_keeps_nobody_waiting() -> None:
    away = ledger(snapshot(running=4, unpromised=0))
    away.close()
    line = [Expected(Demand(32, 32, 400), Band.STANDARD)] * 4
    assert max(forecast(serving_of([away], []), line)) < 0.2, "four rows for four"
    assert forecast(serving_of([away], []), [*line, *line])[-1] > 1.0
    assert max(forecast(serving_of([ReplicaLedger()], []), line * 4)) < 0.5


def test_a_burst_between_two_snapshots_cannot_overshoot() -> None:
    one = ledger(snapshot())
    one.dispatched(1, room(200), 0.0)
    one.dispatched(2, room(64), 0.0)
    assert one.load == 2
    assert one.fits(room(32), 0.0)
    assert not one.fits(room(33), 0.0)
    one.observe(snapshot(running=1, unpromised=3, last_handle=1), 0.1)
    assert one.load == 2
    assert not one.fits(room(33), 0.1)
    one.observe(snapshot(running=2, unpromised=5, last_handle=2), 0.2)
    assert one.fits(room(160), 0.2)


def test_rows_are_bounded() -> None:
    one = ledger(snapshot(running=3))
    assert one.fits(room(32), 0.0)
    one.dispatched(1, room(32), 0.0)
    assert not one.fits(room(32), 0.0)


def test_a_busy_replica_that_has_not_spoken_counts_as_full_until_it_speaks() -> None:
    one = ledger(snapshot(running=1))
    assert one.fits(room(32), 1.9)
    assert not one.fits(room(32), 2.1)
    one.observe(snapshot(running=1), 2.2)
    assert one.fits(room(32), 2.3)
    idle = ledger(snapshot())
    assert idle.fits(room(32), 1000.0)
    idle.dispatched(1, room(32), 1000.0)
    assert idle.fits(room(32), 1001.0)


def test_a_replicas_own_line_stays_short() -> None:
    wide = ReplicaReady(1, ExecutorShape(1000, 32, 320, 100, frozenset()), 320, 64)
    one = ledger(snapshot(running=1, unpromised=900), wide)
    for handle in range(8):
        assert one.fits(room(32), 0.0)
        one.dispatched(handle + 1, room(32), 0.0)
    assert not one.fits(room(32), 0.0)
    one.observe(snapshot(running=5, unpromised=900, last_handle=8, waiting=4), 0.1)
    assert one.fits(room(32), 0.1)


def test_low_bands_leave_room_to_higher_ones() -> None:
    wide = ReplicaReady(1, ExecutorShape(100, 32, 320, 100, frozenset()), 320, 64)
    one = ledger(snapshot(running=10, unpromised=10), wide)
    fits = {band: one.fits(room(6 * 32, band), 0.0) for band in Band}
    assert fits == {Band.HIGH: True, Band.STANDARD: True, Band.LOW: False, Band.BATCH: False}


def test_the_one_that_answers_soonest_is_chosen_and_ties_go_round() -> None:
    ledgers = [ledger(snapshot(running=running)) for running in (1, 0, 0)]
    rooms = [room(32)] * 3
    assert choose(ledgers, rooms, 0, 0.0) == 1
    assert choose(ledgers, rooms, 2, 0.0) == 2
    assert choose(ledgers, [Room(32, 1, Band.HIGH), *rooms[1:]], 0, 0.0) == 0
    assert choose([ledger(snapshot(running=4))], [room(32)], 0, 0.0) is None
    assert choose([], [], 0, 0.0) is None


def test_a_prompt_is_found_where_its_beginning_is_cached_and_only_for_its_tenant() -> None:
    one = ledger(snapshot())
    ids = tuple(range(100))
    names = prompt_fingerprints(ids, "a", 0)
    assert len(names) == 3
    one.observe(snapshot(), 0.0, cached=names[:2])
    assert one.cached_tokens(names) == 64
    assert one.cached_tokens(prompt_fingerprints(ids, "b", 0)) == 0
    assert one.cached_tokens(prompt_fingerprints((1, *ids), "a", 0)) == 0
    assert prompt_fingerprints(ids, "a", 64)[:2] == prompt_fingerprints(ids, "b", 64)[:2] != names[:2]
    one.observe(snapshot(), 0.0, dropped=names[1:2])
    assert one.cached_tokens(names) == 32


def test_a_rate_is_right_from_the_first_second_and_fades() -> None:
    meter = RateMeter(0.0)
    assert meter.rate(0.0) == 0.0
    for tick in range(1, 101):
        meter.add(5, tick / 10)
    assert meter.rate(10.0) == pytest.approx(50, rel=0.05)
    assert meter.rate(40.0) < 1


def test_a_promised_pace_bounds_how_many_run_at_once() -> None:
    """20 tokens a second leave 45 ms for a step: 10, and 4.9 for each that runs, 64 tokens of context included, are 7 of them."""
    wide = ReplicaReady(1, ExecutorShape(100, 32, 320, 100, frozenset()), 320, 64)

    def running(count: int) -> ReplicaSnapshot:
        return ReplicaSnapshot(count, 0, 100, 2 * count, 0, 80, 0, step_ms=(10.0, 1.7, 0.5, 0.05, 0.0))

    promised, free = ReplicaLedger(20), ReplicaLedger()
    for one in (promised, free):
        one.open(wide)
    for count, fits in ((0, True), (6, True), (7, False), (20, False)):
        promised.observe(running(count), 0.0)
        free.observe(running(count), 0.0)
        assert promised.fits(room(32), 0.0) is fits
        assert free.fits(room(32), 0.0)
    assert promised.free_rows == 7 - 20
    promised.observe(snapshot(running=20, unpromised=80), 0.0)
    assert promised.fits(room(32), 0.0), "nothing is known of its steps yet"
