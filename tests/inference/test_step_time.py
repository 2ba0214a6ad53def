from __future__ import annotations

import random

import pytest

from antiphon.inference.step_budget import StepBudget, StepTargets
from antiphon.inference.step_time import StepLoad, StepTimeModel

TRUE_MS = (7.8, 0.51, 0.43, 0.0026, 0.00029)
"""Measured for one model; far from what the model assumes at first."""


def true_seconds(load: StepLoad, scale: float = 1.0) -> float:
    return scale * sum(value * term for value, term in zip(TRUE_MS, load.terms(), strict=True)) / 1000


def random_load(rng: random.Random) -> StepLoad:
    load = StepLoad()
    for _ in range(rng.randrange(1, 17)):
        load.add_row(rng.randrange(50, 2000))
    for _ in range(rng.choice((0, 0, 1, 2))):
        load.add_chunk(rng.randrange(0, 3000), rng.randrange(8, 128))
    return load


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
def test_the_model_learns_a_machine_it_did_not_know(scale: float) -> None:
    rng = random.Random(1)
    model = StepTimeModel()
    for _ in range(400):
        load = random_load(rng)
        model.observe(load, true_seconds(load, scale) * rng.uniform(0.93, 1.07))
    errors = sorted(abs(model.seconds(load) / true_seconds(load, scale) - 1) for load in (random_load(rng) for _ in range(200)))
    assert errors[100] < 0.05
    assert errors[190] < 0.15
    assert min(model.coefficients_ms) >= 0


def test_it_stays_sound_over_very_many_alike_steps() -> None:
    rng = random.Random(3)
    model = StepTimeModel()
    for number in range(30_000):
        load = random_load(rng) if number % 500 == 0 else StepLoad(rows=8, prefill=1, context=4000)
        model.observe(load, true_seconds(load) * rng.uniform(0.9, 1.1))
    errors = sorted(abs(model.seconds(load) / true_seconds(load) - 1) for load in (random_load(rng) for _ in range(200)))
    assert errors[100] < 0.25


def test_a_disturbed_step_does_not_move_it_far() -> None:
    rng = random.Random(2)
    model = StepTimeModel()
    for _ in range(300):
        load = random_load(rng)
        model.observe(load, true_seconds(load))
    probe = random_load(rng)
    before = model.seconds(probe)
    model.observe(random_load(rng), 5.0)
    assert model.seconds(probe) == pytest.approx(before, rel=0.2)


@pytest.mark.parametrize("scale", [0.1, 20.0])
def test_a_machine_that_has_become_another_one_is_learned_anew(scale: float) -> None:
    rng = random.Random(4)
    model = StepTimeModel()
    for number in range(240):
        load = random_load(rng)
        model.observe(load, true_seconds(load, 1.0 if number < 200 else scale))
    probe = random_load(rng)
    assert model.seconds(probe) == pytest.approx(true_seconds(probe, scale), rel=0.2)


@pytest.mark.parametrize("past", [0, 500, 4000])
def test_a_chunk_fills_its_seconds_and_not_more(past: int) -> None:
    model = StepTimeModel()
    tokens = model.chunk_within(0.03, past)
    assert model.chunk_seconds(past, tokens) <= 0.03 < model.chunk_seconds(past, tokens + 1)
    assert model.chunk_within(0.0, past) == 0


def test_steps_beside_decoding_keep_the_inter_token_target() -> None:
    model, targets = StepTimeModel(), StepTargets()
    for rows in (1, 4, 8, 16, 48):
        for past in (0, 1000, 4000):
            load = StepLoad()
            for _ in range(rows):
                load.add_row(600)
            decode_s = model.seconds(load)
            budget = StepBudget(model, targets, load, [(past, 5000)])
            tokens = budget.chunk(past, 5000, 1)
            load.add_chunk(past, tokens)
            assert model.seconds(load) <= max(targets.inter_token_s, targets.stretch * decode_s) + 1e-9
            assert tokens >= 8 or past == 4000


def test_many_short_prompts_share_more_than_one_long_one_gets() -> None:
    model, targets = StepTimeModel(), StepTargets()
    load = StepLoad()
    load.add_row(500)
    assert _granted(StepBudget(model, targets, load, [(400, 30)] * 12), [(400, 30)] * 12) == 90
    assert _granted(StepBudget(model, targets, load, [(0, 4000)]), [(0, 4000)]) <= 80


def test_a_prompt_alone_gets_a_long_step_and_a_burst_does_not() -> None:
    model, targets = StepTimeModel(), StepTargets()
    alone = _granted(StepBudget(model, targets, StepLoad(), [(0, 4000)]), [(0, 4000)])
    burst = _granted(StepBudget(model, targets, StepLoad(), [(400, 40)] * 16), [(400, 40)] * 16)
    assert alone > 300
    assert burst == 120


@pytest.mark.parametrize(
    ("rows", "waiting", "passed_by", "begin"),
    [
        (1, 1, 0, 1),
        (0, 12, 0, 3),
        (3, 12, 12, 3),
        (4, 12, 0, 2),
        (7, 12, 2, 2),
        (7, 12, 3, 3),
        (8, 12, 0, 3),
        (8, 12, 12, 3),
        (4, 80, 0, 10),
    ],
)
def test_how_many_short_prompts_begin_together(rows: int, waiting: int, passed_by: int, begin: int) -> None:
    model, prompts = StepTimeModel(prior_ms=(1.0, 0.01, 0.01, 0.0, 0.0)), [(400, 30)] * waiting
    load = StepLoad()
    for _ in range(rows):
        load.add_row(500)
    assert _granted(StepBudget(model, StepTargets(), load, prompts, passed_by), prompts) == 30 * begin


def test_a_slow_machine_still_computes_something() -> None:
    model = StepTimeModel(prior_ms=(500.0, 50.0, 100.0, 0.1, 0.01))
    budget = StepBudget(model, StepTargets(), StepLoad(), [(0, 1000)])
    assert budget.chunk(0, 1000, 1) >= 8
    assert StepBudget(model, StepTargets(), StepLoad(), [(0, 1000)]).chunk(0, 1000, 32) >= 32


def _granted(budget: StepBudget, prompts: list[tuple[int, int]]) -> int:
    total = 0
    for past, remaining in prompts:
        if budget.spent:
            break
        tokens = budget.chunk(past, remaining, 1)
        if tokens:
            budget.spend(past, tokens)
        total += tokens
    return total
