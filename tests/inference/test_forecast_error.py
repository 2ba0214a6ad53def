"""What is told is put right both ways, what is let in on it only upwards."""

from __future__ import annotations

from antiphon.inference.forecast_error import ForecastError


def seen(forecast_s: float, actual_s: float, *, times: int = 40) -> ForecastError:
    errors = ForecastError(0.9)
    for _ in range(times):
        errors.observe(forecast_s, actual_s)
    return errors


def test_waits_that_were_longer_than_forecast_make_the_next_ones_longer() -> None:
    errors = seen(2.0, 3.0, times=300)
    assert errors.bias == 1.5
    assert errors.at_most_s(2.0) == 3.0


def test_waits_that_were_shorter_are_told_shorter_and_let_nobody_more_in() -> None:
    errors = seen(2.0, 1.6)
    assert errors.bias == 0.8
    assert errors.at_most_s(2.0) == 2.0


def test_a_tenth_that_waits_longer_is_what_others_are_measured_by() -> None:
    errors = seen(1.0, 1.0, times=80)
    for _ in range(20):
        errors.observe(1.0, 2.5)
    assert errors.at_most_s(1.0) >= 2.5


def test_nobody_is_measured_by_a_few() -> None:
    assert seen(1.0, 9.0, times=3).at_most_s(1.0) < 1.5
