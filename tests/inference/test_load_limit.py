from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.inference.load_limit import LOAD_LIMIT, LoadLimit


def test_a_load_may_take_ten_times_as_long_as_the_last_one_and_a_minute_at_least() -> None:
    assert [LOAD_LIMIT.seconds(usual_s, 0) for usual_s in (None, 0.5, 6.0, 30.0)] == [600.0, 60.0, 60.0, 300.0]


def test_each_load_that_came_to_its_limit_doubles_the_next_ones_up_to_eight_times() -> None:
    limit = LoadLimit(usual_loads=3.0, least_s=1.0, unknown_s=9.0)
    assert [limit.seconds(2.0, overdue) for overdue in range(6)] == [6.0, 12.0, 24.0, 48.0, 48.0, 48.0]


@given(st.none() | st.floats(0.0, 1e6), st.integers(0, 10**6))
def test_no_load_is_given_for_ever(usual_s: float | None, overdue_loads: int) -> None:
    given_s = LOAD_LIMIT.seconds(usual_s, overdue_loads)
    assert LOAD_LIMIT.least_s <= given_s <= 8 * max(LOAD_LIMIT.unknown_s, 10 * (usual_s or 0.0))
    assert given_s > (usual_s or 0.0)
