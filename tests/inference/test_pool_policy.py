from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from antiphon.core.tenancy import Band
from antiphon.inference.admission import Shed, within_limit
from antiphon.inference.arrival_rate import ArrivalRate
from antiphon.inference.ask import Ask, Demand
from antiphon.inference.availability import Availability
from antiphon.inference.circuit import Circuit, CircuitBreaker
from antiphon.inference.fleet import RateMeter
from antiphon.inference.length_estimate import LengthEstimator
from antiphon.inference.wait_forecast import HORIZON_S, Arrivals, Expected, Serving, forecast
from tests.inference.virtual_pool import Machine, PlanLoad, Turn, VirtualPool, poisson_turns


def test_in_a_load_that_begins_at_ten_times_the_capacity_little_is_done_too_late() -> None:
    """Lower bands are told what higher ones will leave, whose refused come back, not what they leave now."""
    pool, turns = VirtualPool(Machine()), poisson_turns(200, 40, 5)
    pool.run(turns)
    begun = [turn for turn in turns if turn.first_token_s is not None]
    assert sum(turn.length for turn in begun if not turn.met) <= 0.05 * sum(turn.length for turn in begun)


def test_nobody_is_refused_for_a_model_that_has_to_be_loaded() -> None:
    away = Availability(opening_s=30.0, on_demand=True)
    policy, ask = VirtualPool(Machine()).policy, Ask("tenant", "user", 20, 20, wait_limit_s=0.05)
    alone = policy.look(ask, 0.0, away)
    assert (within_limit(ask, alone), alone.starts_now, alone.wait_s > 30.0) == (True, False, True)
    for key in range(200):
        policy.enter(key, replace(ask, output_tokens=2000), 0.0)
    assert not within_limit(ask, policy.look(ask, 0.0, away)), "for those before it one is"


def accepted(turns: list[Turn]) -> list[Turn]:
    return [turn for turn in turns if not isinstance(turn.decision, Shed)]


def check_fates(pool: VirtualPool, turns: list[Turn]) -> None:
    """Whoever was let in came to its end; whoever was not has a time to come back; nothing is left."""
    assert pool.faults == []
    for turn in turns:
        if isinstance(turn.decision, Shed):
            assert turn.started_s is None
            assert 1000 <= turn.decision.retry_after_ms <= 75_000
        else:
            assert turn.ended_s is not None
            assert turn.cancelled or turn.written == turn.length
    assert (pool.policy.waiting_count, pool.policy.running_count, pool.engine.idle) == (0, 0, True)
    pool.check()
    snapshot = pool.engine.snapshot()
    assert (snapshot.held, snapshot.unpromised) == (0, pool.engine.machine.blocks)


def test_below_capacity_nobody_is_refused_and_hardly_anybody_waits() -> None:
    pool, turns = VirtualPool(Machine(), check_every=20), poisson_turns(10, 20, 1)
    pool.run(turns)
    check_fates(pool, turns)
    assert len(accepted(turns)) == len(turns)
    assert all(turn.met for turn in turns)


def test_at_ten_times_the_capacity_the_accelerator_does_work_that_is_in_time() -> None:
    """Capacity is about 20 requests a second. The peak is the goodput at 1.5 times that."""
    goodput: dict[float, float] = {}
    for rate in (30.0, 200.0):
        pool, turns = VirtualPool(Machine(), check_every=500), poisson_turns(rate, 40, 2)
        pool.run(turns)
        check_fates(pool, turns)
        goodput[rate] = sum(turn.length for turn in turns if turn.met and turn.arrived_s > 10)
        top = sorted(
            turn.first_token_s - turn.arrived_s for turn in accepted(turns) if turn.ask.band is Band.HIGH and turn.first_token_s is not None
        )
        assert top[int(0.99 * len(top))] <= 1.5
    assert goodput[200.0] >= 0.9 * goodput[30.0]


def test_the_same_seed_is_the_same_day() -> None:
    fates: list[list[object]] = []
    for _ in range(2):
        pool, turns = VirtualPool(Machine()), poisson_turns(60, 8, 3, cancels=0.2)
        pool.run(turns)
        fates.append([(turn.decision, turn.positions, turn.started_s, turn.ended_s) for turn in turns])
    assert fates[0] == fates[1]


def test_cancels_in_all_phases_leave_nothing_behind() -> None:
    pool, turns = VirtualPool(Machine(), check_every=1), poisson_turns(60, 8, 4, cancels=0.6)
    pool.run(turns)
    check_fates(pool, turns)
    assert sum(turn.cancelled for turn in turns) > 50


def others_least_share(*, fair: bool) -> float:
    """Eight tenants that always have something waiting, one with twenty times the load: the least served of the others,
    against an eighth of all that was served meanwhile. It is some 160 answers for each: of a third of them, the lengths alone differ by
    a tenth.
    """
    plans = (PlanLoad(1.0, Band.STANDARD, 1e9, tenants=1),)
    turns: list[Turn] = []
    for tenant in range(8):
        load = 400.0 if tenant == 0 else 20.0
        turns += [replace_tenant(turn, f"t{tenant}") for turn in poisson_turns(load, 10, 10 + tenant, plans=plans)]
    turns.sort(key=lambda turn: turn.arrived_s)
    for number, turn in enumerate(turns):
        turn.number = number
    pool = VirtualPool(Machine(), queue_limit=10**9, fair=fair, refuses=False)
    pool.run(turns, until_s=38.0)
    served = {f"t{tenant}": 0.0 for tenant in range(8)}
    for turn in turns:
        if turn.started_s is not None and 2.0 <= turn.started_s <= 38.0:
            served[turn.ask.tenant] += turn.ask.prompt_tokens + 2 * turn.written
    return min(served[f"t{tenant}"] for tenant in range(1, 8)) / (sum(served.values()) / 8)


def replace_tenant(turn: Turn, tenant: str) -> Turn:
    return Turn(turn.number, replace(turn.ask, tenant=tenant, user=""), turn.length, None, turn.arrived_s)


@pytest.mark.slow
@pytest.mark.slow
def test_a_flooder_leaves_others_their_share_and_plain_order_of_arrival_does_not() -> None:
    assert others_least_share(fair=True) >= 0.9
    assert others_least_share(fair=False) < 0.5


def test_lengths_are_learned_for_each_kind_and_a_limit_that_cut_them_off_is_no_length() -> None:
    estimator = LengthEstimator()
    chat, code = Ask("t", "u", 50, 1000, kind="chat"), Ask("t", "u", 50, 1000, kind="code")
    assert estimator.estimate(chat).long == 1000
    for number in range(100):
        estimator.observe(chat, 20 + number % 10, cut=False)
        estimator.observe(code, 600, cut=True)
    assert 20 <= estimator.estimate(chat).mean <= 40
    assert 28 <= estimator.estimate(chat).long <= 35
    assert estimator.estimate(code).mean > 800
    assert estimator.estimate(replace(chat, output_tokens=8)).long == 8
    longer = estimator.estimate(chat, 25)
    assert 26 <= longer.mean <= 40


def test_the_line_is_played_forward() -> None:
    demand = Demand(64, 10, 50.0)
    busy = Serving(1, 128, 0, 62, [(10.0, 64), (30.0, 64)], (100.0, 0.0, 1.0, 0.0, 0.0))
    starts = forecast(busy, [Expected(demand, Band.STANDARD)] * 3)
    assert starts[0] == pytest.approx(1.0 + 0.01 + 0.1, rel=0.05)
    assert starts[1] == pytest.approx(3.0 + 0.02 + 0.1, rel=0.05)
    assert starts[2] == pytest.approx(6.0 + 0.1, rel=0.1)
    overtaken = forecast(busy, [Expected(demand, Band.STANDARD)], [Arrivals(Band.HIGH, 2.0, demand)])
    assert overtaken[0] > starts[0] + 1.0
    assert forecast(Serving(1, 128, 128, 64, []), [Expected(demand, Band.LOW, probe=True)])[0] < 0.1
    half = Serving(1, 128, 64, 63, [(10.0, 64)], (100.0, 0.0, 1.0, 0.0, 0.0))
    assert forecast(half, [Expected(demand, Band.STANDARD)])[0] < 0.2
    assert forecast(replace(half, block_tokens=96), [Expected(demand, Band.STANDARD)])[0] > 1.0
    assert math.isfinite(forecast(Serving(0, 0, 0, 0, []), [Expected(demand, Band.LOW)])[0])


def test_a_load_that_jumps_is_believed_within_seconds_and_chance_is_not() -> None:
    rng, rate, now = random.Random(6), ArrivalRate(0.0), 60.0
    while (now := now + rng.expovariate(5.0)) < 64.0:
        rate.add(now)
    assert 3.0 <= rate.rate(64.0) <= 7.0
    slow = RateMeter(0.0, 10.0)
    slow.add(20.0, 62.0)
    assert slow.rate(64.0) < 2.0
    errors: list[float] = []
    while (now := now + rng.expovariate(5.0)) < 400.0:
        rate.add(now)
        errors.append(abs(rate.rate(now) - 5.0))
    assert sum(errors) / len(errors) < 1.2


def test_a_pool_that_stood_still_tells_nobody_more_than_the_horizon() -> None:
    pool = VirtualPool(Machine())
    turns = poisson_turns(60, 8, 5)
    pool.run(turns)
    ask, last_s = turns[-1].ask, 1000.0
    for number in range(50):  # accepted, and nothing starts any more
        pool.policy.enter(number, ask, last_s, ready=False)
        last_s += 10
        look = pool.policy.look(ask, last_s)
        assert look.wait_s <= 2 * HORIZON_S
        assert 1 <= pool.policy.retry_after_s(ask, look, last_s, str(number)) <= 75


def test_a_circuit_opens_after_failures_in_a_row_and_a_probe_closes_it() -> None:
    breaker = CircuitBreaker()
    for moment in (0.0, 0.1):
        breaker.failed(moment)
        breaker.succeeded()
    for moment in (1.0, 1.1, 1.2):
        assert breaker.takes(moment, busy=False)
        breaker.failed(moment)
    assert breaker.state(1.3) is Circuit.OPEN
    assert not breaker.takes(1.3, busy=False)
    assert breaker.opens_in_s(1.3) == pytest.approx(0.9)
    assert breaker.state(2.3) is Circuit.HALF_OPEN
    assert breaker.wants_probe(2.3)
    assert not breaker.takes(2.3, busy=False)
    breaker.probed()
    assert not breaker.wants_probe(2.3)
    breaker.failed(2.4)
    assert breaker.opens_in_s(2.4) == pytest.approx(2.0)
    assert breaker.wants_probe(4.5)
    breaker.probed()
    breaker.succeeded()
    assert breaker.takes(4.6, busy=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_requests_in_virtual_time() -> None:
    """Three plans, cancels, ten times what the pool can take; every invariant every thousand events."""
    pool = VirtualPool(Machine(), check_every=1000)
    turns = poisson_turns(200, 500, 5, cancels=0.05)
    assert len(turns) > 99_000
    pool.run(turns)
    check_fates(pool, turns)
    assert len(accepted(turns)) > 5000


def test_who_is_alone_is_never_kept_shorter_however_long_the_last_wait_was() -> None:
    pool = VirtualPool(Machine(blocks=8, rows=1))
    alone = Ask("t", "one", prompt_tokens=64, output_tokens=1024, free_length=True, downgrade=True, wait_limit_s=600.0)
    pool.policy.enter(1, alone, 0.0)
    pool.policy.started(1, 0, 1, 0.0)
    pool.policy.enter(2, alone, 0.1)
    later = [pool.policy.look(alone, 0.2 + number) for number in range(5)]
    assert later[-1].wait_s > 5, "the second has to wait"
    assert not any(look.high for look in later)
    other = replace(alone, user="two")
    pool.policy.look(other, 5.0)
    assert pool.policy.look(other, 6.0).high, "somebody else is served meanwhile"


def test_room_is_kept_for_a_moment_for_who_was_let_in_before_and_is_not_ready_yet() -> None:
    pool = VirtualPool(Machine(blocks=8, rows=8))
    ask = Ask("t", "one", prompt_tokens=64, output_tokens=64, wait_limit_s=600.0)
    pool.policy.enter(1, ask, 0.0)
    pool.policy.started(1, 0, 1, 0.0)
    pool.policy.enter(2, replace(ask, user="two", band=Band.HIGH), 0.0, ready=False)
    pool.policy.enter(3, replace(ask, user="three"), 0.0)
    assert pool.policy.next(0.1) is None, "four blocks are free, and the one of the higher band wants them"
    pool.policy.check()
    assert pool.policy.next(1.5) == (3, 0), "it does not come"
    pool.policy.attach(2, replace(ask, user="two", band=Band.HIGH))
    pool.policy.check()
    assert pool.policy.next(1.5) == (2, 0)
