"""As many answers at once as keep a promised pace, by what steps really take."""

from __future__ import annotations

import pytest

from antiphon.inference.stream_pace import StreamPace
from antiphon.inference.wire import ReplicaSnapshot

BLOCK = 32


def state(running: int) -> ReplicaSnapshot:
    """Steps of 10 ms and 4.9 for each row, its 64 tokens of context included."""
    return ReplicaSnapshot(running, 0, 100, 2 * running, 0, 80, 0, step_ms=(10.0, 1.7, 0.5, 0.05, 0.0))


def after(steps: int, rows: int, factor: float) -> StreamPace:
    """Of one that has seen so many steps, each ``factor`` times as long as its decode rows alone would take."""
    pace, now = StreamPace(20), 0.0
    for _ in range(steps):
        pace.observe(state(rows), BLOCK, rows, now)
        now += factor * (10 + 4.9 * rows) / 1000
    return pace


def test_it_is_what_the_model_says_until_something_is_known() -> None:
    assert StreamPace(20).rows(state(3), BLOCK) == 7
    assert StreamPace(20).rows(ReplicaSnapshot(3, 0, 100, 6, 0, 80, 0), BLOCK) > 1000


@pytest.mark.parametrize(("factor", "rows"), [(1.0, 7), (1.5, 4), (2.0, 2), (30.0, 1)])
def test_prompts_and_neighbours_that_lengthen_steps_leave_room_for_fewer(factor: float, rows: int) -> None:
    pace = after(200, 4, factor)
    assert pace.stretch == pytest.approx(min(factor, 4.0))
    assert pace.rows(state(4), BLOCK) == rows


def test_it_recovers_when_they_have_gone() -> None:
    pace, now = after(200, 4, 2.0), 100.0
    pace.pause()
    for _ in range(150):
        pace.observe(state(4), BLOCK, 4, now)
        now += 0.0296
    assert pace.rows(state(4), BLOCK) == 7


def test_time_in_which_nothing_ran_is_no_step() -> None:
    pace = after(50, 4, 1.0)
    pace.observe(state(0), BLOCK, 0, 1000.0)
    pace.observe(state(1), BLOCK, 1, 2000.0)
    assert pace.stretch == pytest.approx(1.0)
    pace.pause()
    pace.observe(state(4), BLOCK, 4, 3000.0)
    assert pace.stretch == pytest.approx(1.0)
