"""What is scored how, and what follows. Times are of a day that nobody lives."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.abuse import Case, CaseState
from antiphon.core.clock import from_ms
from antiphon.core.ids import TenantId, UserId
from antiphon.governance.abuse_policy import FLAG_AT, THROTTLE_AT, Activity, Decision, Flag, Keep, Lift, Slow, decide, score_of

START_MS = 1_790_000_000_000
MINUTE = 60_000
NOW = from_ms(START_MS)
CASE = Case(TenantId("t"), UserId("u"), CaseState.FLAGGED, 0.6, (), NOW)


def levels(activity: Activity, now_ms: int) -> dict[str, float]:
    activity.check()
    return {signal.name: round(signal.level, 2) for signal in activity.signals(now_ms)}


def test_a_busy_hour_of_a_person_is_nothing() -> None:
    """Sixty questions in an hour, in four conversations, each answered for twenty seconds, ten asked twice."""
    activity = Activity()
    for minute in range(60):
        at = START_MS + minute * MINUTE
        activity.began(at, conversation=f"c{minute // 15}", key=None, asked=str(minute if minute % 6 else 0))
        activity.ran(at + 20_000, 20_000)
    assert score_of(activity.signals(START_MS + 60 * MINUTE - 1)) == 0


def test_an_engine_that_never_rests_for_one_account_flags_it_alone() -> None:
    activity = Activity()
    for number in range(240):
        activity.ran(START_MS + (number + 1) * 15_000, 15_000)
        activity.ran(START_MS + (number + 1) * 15_000, 9_000)  # at the same time: counts once
    now = START_MS + 240 * 15_000 - 1
    assert levels(activity, now) == {"continuous_generation": 1, "fan_out": 0, "many_keys": 0, "repeated_prompts": 0}
    assert FLAG_AT <= score_of(activity.signals(now)) < THROTTLE_AT
    assert levels(activity, now + 45 * MINUTE)["continuous_generation"] == 0


def test_fan_out_and_repeats_together_are_enough_to_slow() -> None:
    activity = Activity()
    for number in range(200):
        activity.began(START_MS + number * 1000, conversation=f"c{number}", key=f"k{number % 5}", asked="again")
    now = START_MS + 200 * 1000
    assert levels(activity, now) == {"continuous_generation": 0, "fan_out": 1, "many_keys": 0.29, "repeated_prompts": 1}
    assert score_of(activity.signals(now)) > THROTTLE_AT
    assert score_of(activity.signals(now + 70 * MINUTE)) == 0


def test_few_questions_repeat_nothing_and_many_keys_alone_flag_nobody() -> None:
    activity = Activity()
    for number in range(29):
        activity.began(START_MS, conversation="c", key=f"k{number}", asked="again")
    assert levels(activity, START_MS) == {"continuous_generation": 0, "fan_out": 0, "many_keys": 1, "repeated_prompts": 0}
    assert score_of(activity.signals(START_MS)) < FLAG_AT


def test_from_a_flag_to_a_throttle_and_back() -> None:
    def after(minutes: float, score: float, case: Case | None = CASE) -> Decision:
        return decide(case, score, NOW + timedelta(minutes=minutes))

    slowed = replace(CASE, state=CaseState.THROTTLED)
    cleared = replace(CASE, state=CaseState.CLEAR)
    assert after(0, 0.49, None) == Keep()
    assert after(0, 0.5, None) == after(0, 0.5, cleared) == Flag()
    assert after(0.9, 0.99) == Keep(), "a flag comes first, and stands for a minute"
    assert after(1, 0.75) == Slow()
    assert after(29, 0.6) == Keep()
    assert after(30, 0.5) == Slow()
    assert after(59, 0) == after(61, 0.25) == Keep()
    assert after(60, 0.24) == after(60, 0.24, slowed) == Lift()
    assert after(600, 0.3, slowed) == after(600, 1, slowed) == Keep()


def test_what_a_person_decided_stays() -> None:
    admin = UserId("admin")
    upheld = replace(CASE, state=CaseState.THROTTLED, reviewed_by=admin)
    trusted = replace(CASE, state=CaseState.CLEAR, reviewed_by=admin, trusted_until=NOW + timedelta(days=7))
    assert decide(upheld, 0, NOW + timedelta(days=9)) == Keep()
    assert decide(trusted, 1, NOW + timedelta(days=6)) == Keep()
    assert decide(trusted, 1, NOW + timedelta(days=7)) == Flag()


@given(
    st.lists(st.tuples(st.integers(0, 3 * 60 * MINUTE), st.integers(0, 2 * 60 * MINUTE), st.integers(0, 700), st.booleans()), max_size=300)
)
def test_whatever_comes_in_whatever_order_bounds_hold(turns: list[tuple[int, int, int, bool]]) -> None:
    activity = Activity()
    for at, ran_ms, name, ends in turns:
        if ends:
            activity.ran(START_MS + at, ran_ms)
        else:
            activity.began(START_MS + at, conversation=str(name), key=str(name), asked=str(name))
        activity.check()
    for signal in activity.signals(START_MS + 3 * 60 * MINUTE):
        assert 0 <= signal.level <= 1
