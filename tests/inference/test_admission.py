from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from antiphon.core.tenancy import Band
from antiphon.inference.admission import CAPPED_TOKENS, Admit, Downgrade, Look, Queue, Shed, decide, output_cap
from antiphon.inference.ask import Ask
from antiphon.inference.drain import DrainMeter, Pressure, ReturnSlots
from antiphon.inference.stickiness import Stickiness

ASK = Ask("t", "u", 100, 400, wait_limit_s=3.0, downgrade=True)


def look(wait_s: float = 0.0, *, pool: str = "large", full: bool = False, available: bool = True, high: bool = False) -> Look:
    return Look(
        pool=pool,
        model=f"{pool}-model",
        available=available,
        opening_s=4.0,
        starts_now=wait_s == 0.0,
        full=full,
        high=high,
        position=5,
        wait_s=wait_s,
        prefill_s=0.1,
        queued_at_most_s=max(wait_s - 0.1, 0.0),
    )


def test_what_fits_starts_and_what_waits_within_the_limit_waits() -> None:
    assert decide(ASK, look(), None, sticky=False) == Admit()
    assert decide(ASK, look(2.0), None, sticky=False) == Queue(5, 2000)


def test_beyond_the_limit_a_quicker_smaller_model_answers() -> None:
    small = look(pool="small")
    assert decide(ASK, look(9.0), small, sticky=False) == Downgrade("small", "small-model", "high_demand", Admit())
    assert decide(ASK, look(9.0), look(1.0, pool="small"), sticky=False) == Downgrade("small", "small-model", "high_demand", Queue(5, 1000))
    assert decide(ASK, look(available=False), small, sticky=False) == Downgrade("small", "small-model", "unavailable", Admit())
    assert decide(ASK, look(full=True), look(9.0, pool="small"), sticky=False, retry_after_s=7) == Shed("high_demand", 7000)
    assert decide(ASK, look(), small, sticky=True) == Downgrade("small", "small-model", "high_demand", Admit())
    assert decide(ASK, look(), look(9.0, pool="small"), sticky=True) == Admit()


def test_a_smaller_model_that_has_to_be_loaded_answers_where_that_is_quicker_or_there_is_no_other() -> None:
    small = replace(look(2.0, pool="small"), on_demand=True, queued_at_most_s=0.0)
    given = Downgrade("small", "small-model", "high_demand", Queue(5, 2000))
    assert decide(ASK, look(), small, sticky=True) == Admit()
    assert decide(ASK, look(9.0), small, sticky=False) == given
    late = replace(small, wait_s=9.0, opening_s=8.5, queued_at_most_s=0.4)
    assert decide(ASK, look(9.0), late, sticky=False) == Shed("high_demand", 1000)
    assert isinstance(decide(ASK, look(available=False), late, sticky=False), Downgrade)


def test_what_cannot_be_served_in_time_is_refused_at_once() -> None:
    assert decide(ASK, look(9.0), None, sticky=False, retry_after_s=6.5) == Shed("high_demand", 6500)
    assert decide(ASK, look(available=False), None, sticky=False) == Shed("no_capacity", 4000)
    assert decide(ASK, replace(look(2.9), queued_at_most_s=4.2), None, sticky=False) == Shed("high_demand", 1000)
    assert decide(ASK, replace(look(), holds=False), None, sticky=False) == Shed("high_demand", 1000)


def test_a_long_prompt_is_not_refused_for_its_own_length() -> None:
    long = replace(look(10.0), prefill_s=9.0, queued_at_most_s=1.0)
    assert isinstance(decide(ASK, long, None, sticky=False), Queue)


def test_in_high_demand_an_answer_of_no_particular_length_is_kept_shorter() -> None:
    free = replace(ASK, free_length=True)
    assert decide(free, look(high=True), None, sticky=False) == Admit(CAPPED_TOKENS)
    assert output_cap(free, high=False) is None
    assert output_cap(ASK, high=True) is None
    assert output_cap(replace(free, downgrade=False), high=True) is None


def test_the_meter_measures_only_while_somebody_waits() -> None:
    meter = DrainMeter()
    assert meter.rate(0.0) is None
    meter.update(0.0, waiting=True)
    for second in range(1, 11):
        meter.update(float(second), waiting=True, started=2)
    assert meter.rate(10.0) == pytest.approx(2.0, rel=0.05)
    meter.update(10.0, waiting=False)
    assert meter.rate(500.0) == pytest.approx(2.0, rel=0.05)
    meter.update(500.0, waiting=True)
    assert (meter.rate(520.0) or 0) < 1.0


def test_those_that_are_refused_come_back_one_by_one_at_the_lines_pace() -> None:
    slots = ReturnSlots()
    told = [slots.take(Band.STANDARD, 0.0, soonest_s=2.0, rate=10.0, name=str(n)) for n in range(200)]
    assert min(told) >= 2.0
    assert max(told) <= 24.0
    for second in range(3, 20):
        assert 4 <= sum(second <= at < second + 1 for at in told) <= 20
    assert told == [ReturnSlots().take(Band.STANDARD, 0.0, soonest_s=2.0, rate=10.0, name="0"), *told[1:]]
    late = [slots.take(Band.STANDARD, 0.0, soonest_s=2.0, rate=10.0, name=str(n)) for n in range(2000)]
    assert max(late) <= 61.0


def test_high_demand_ends_only_after_a_while_of_calm() -> None:
    pressure = Pressure()
    assert not pressure.update(0.0, 0.1)
    assert pressure.update(1.0, 2.0)
    assert pressure.update(2.0, 0.0)
    assert pressure.update(31.0, 0.0)
    assert not pressure.update(32.5, 0.0)


def test_a_downgraded_conversation_does_not_flip_under_an_oscillating_load() -> None:
    """The load comes and goes every ten seconds: the conversation changes once, and back once when it is over."""
    pressure, sticky = Pressure(), Stickiness()
    served: list[str] = []
    for second in range(600):
        busy = second < 300 and second // 10 % 2 == 0
        high = pressure.update(float(second), 5.0 if busy else 0.0)
        if second % 5 == 0:
            small = sticky.holds("c", float(second), high=high) or busy
            if small:
                sticky.give("c", float(second))
            served.append("small" if small else "large")
    changes = sum(before != after for before, after in itertools.pairwise(served))
    assert (served[0], served[-1], changes) == ("small", "large", 1)
