"""Which form computes decode rows."""

from __future__ import annotations

import random

import pytest

from antiphon.engines.form_choice import FormChoice


def run(choice: FormChoice, rows: int, packed_s: float, unpacked_s: float, steps: int = 40) -> list[bool]:
    chosen: list[bool] = []
    noise = random.Random(rows)
    for _ in range(steps):
        unpacked = choice.unpacked(rows)
        choice.observe(rows, unpacked, (unpacked_s if unpacked else packed_s) * noise.uniform(0.9, 1.1))
        chosen.append(unpacked)
    return chosen


@pytest.mark.parametrize(("packed_s", "unpacked_s"), [(0.030, 0.022), (0.022, 0.030)])
def test_both_are_tried_and_the_faster_one_stays(packed_s: float, unpacked_s: float) -> None:
    for rows in (2, 4, 8, 32):
        chosen = run(FormChoice(), rows, packed_s, unpacked_s)
        assert sum(chosen[:16]) == 8
        assert set(chosen[16:]) == {unpacked_s < packed_s}


def test_one_row_is_always_computed_packed() -> None:
    assert not any(run(FormChoice(), 1, 0.030, 0.001))


def test_one_slow_step_does_not_decide() -> None:
    choice = FormChoice()
    choice.observe(8, True, 9.0)
    assert run(choice, 8, 0.030, 0.022)[-1]


def test_about_as_many_rows_are_judged_together() -> None:
    choice = FormChoice()
    run(choice, 2, 0.015, 0.018)
    run(choice, 5, 0.027, 0.021)
    assert [choice.unpacked(rows) for rows in (1, 2, 3, 4, 5, 7)] == [False, False, False, True, True, True]
    run(choice, 8, 0.022, 0.030)
    assert [choice.unpacked(rows) for rows in (8, 15, 16)] == [False, False, True], "sixteen are not judged yet"
