"""Draws follow the distribution, and depend on nothing but the row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from antiphon.core.generation import Sampling
from antiphon.engines.base import SampleRow
from antiphon.engines.logits import log_probabilities
from antiphon.engines.sampler import Sampler, uniform

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.07, 0.03], np.float32))


def sample(logits: NDArray[np.float32], rows: Sequence[SampleRow]) -> list[int]:
    return Sampler(logits.shape[1]).sample(logits, rows)


def row(position: int, output: Sequence[int] = (), bias: tuple[tuple[int, float], ...] = (), **values: float) -> SampleRow:
    sampling = Sampling(
        max_tokens=1,
        temperature=values.get("temperature", 1.0),
        top_p=values.get("top_p", 1.0),
        top_k=int(values.get("top_k", 0)),
        seed=int(values.get("seed", 0)),
        min_p=values.get("min_p", 0.0),
        repetition_penalty=values.get("repetition", 1.0),
        presence_penalty=values.get("presence", 0.0),
        frequency_penalty=values.get("frequency", 0.0),
        logit_bias=bias,
    )
    return SampleRow(position, sampling, b"", output)


def shares(count: int = 4000, **values: float) -> list[float]:
    logits = np.repeat(LOGITS[None, :], count, axis=0)
    drawn = sample(logits, [row(position, **values) for position in range(count)])
    return [drawn.count(token) / count for token in range(len(LOGITS))]


def test_temperature_zero_takes_the_most_probable() -> None:
    assert shares(10, temperature=0.0) == [1.0, 0, 0, 0, 0]
    assert shares(10, top_k=1) == [1.0, 0, 0, 0, 0]
    assert shares(10, temperature=1e-45) == [1.0, 0, 0, 0, 0]


def test_draws_follow_the_distribution() -> None:
    assert np.allclose(shares(), [0.5, 0.25, 0.15, 0.07, 0.03], atol=0.025)


def test_temperature_sharpens() -> None:
    squared = np.exp(2 * LOGITS)
    assert np.allclose(shares(temperature=0.5), squared / squared.sum(), atol=0.025)


def test_top_p_takes_the_fewest_tokens_that_reach_it() -> None:
    assert np.allclose(shares(top_p=0.7), [2 / 3, 1 / 3, 0, 0, 0], atol=0.025)
    assert np.allclose(shares(top_p=0.8), [5 / 9, 2.5 / 9, 1.5 / 9, 0, 0], atol=0.025)
    assert shares(50, top_p=1e-6) == [1.0, 0, 0, 0, 0]


def test_top_k_then_top_p() -> None:
    assert np.allclose(shares(top_k=2), [2 / 3, 1 / 3, 0, 0, 0], atol=0.025)
    assert shares(50, top_k=2, top_p=0.6) == [1.0, 0, 0, 0, 0]


def test_min_p_takes_a_share_of_the_best() -> None:
    assert np.allclose(shares(min_p=0.29), [5 / 9, 2.5 / 9, 1.5 / 9, 0, 0], atol=0.025)
    assert np.allclose(shares(min_p=0.29, top_p=0.7), [2 / 3, 1 / 3, 0, 0, 0], atol=0.025)
    assert shares(50, min_p=1.0) == [1.0, 0, 0, 0, 0]


def test_penalties_and_bias_change_what_is_best() -> None:
    def best(**changes: float) -> int:
        return sample(LOGITS[None, :], [row(0, [0, 0, 0, 1], temperature=0.0, **changes)])[0]

    assert best() == 0
    assert best(presence=0.6) == 0, "both were in the answer"
    assert best(presence=1.3) == 2
    assert best(frequency=0.4) == 1, "once against three times"
    assert best(repetition=2.0) == 0, "log 0.25 doubled is less than log 0.5 doubled"
    assert best(repetition=3.0) == 2
    assert sample(LOGITS[None, :], [row(0, bias=((4, 3.0), (99, 50.0), (-1, 50.0)), temperature=0.0)]) == [4]
    assert sample(LOGITS[None, :] + 9, [row(0, [0], temperature=0.0, repetition=1.2)]) == [1], "a positive logit is divided"


def test_penalised_draws_follow_the_changed_distribution() -> None:
    logits = np.repeat(LOGITS[None, :], 4000, axis=0)
    before = logits.copy()
    drawn = sample(logits, [row(position, [0, 0, 3], frequency=0.5, presence=0.2) for position in range(4000)])
    changed = np.exp(LOGITS - np.array([1.2, 0, 0, 0.7, 0], np.float32))
    assert np.allclose([drawn.count(token) / 4000 for token in range(5)], changed / changed.sum(), atol=0.025)
    assert np.array_equal(logits, before), "the caller's logits are the model's"


def test_logits_that_are_not_numbers_are_refused() -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(FloatingPointError):
            sample(np.array([[1.0, value, 0.0]], np.float32), [row(0)])
    assert sample(np.array([[-np.inf, 1.0, -np.inf]], np.float32), [row(0, top_k=2)]) == [1]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(0, 40))
def test_log_probabilities_are_the_softmax(seed: int, token: int, most: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, 300).astype(np.float32)
    wide = logits.astype(np.float64)
    expected = wide - np.log(np.exp(wide).sum())
    own, top = log_probabilities(logits, token, most)
    assert np.isclose(own, expected[token], atol=1e-5)
    assert [one.token_id for one in top] == np.argsort(-expected, kind="stable")[:most].tolist()
    assert np.allclose([one.logprob for one in top], expected[[one.token_id for one in top]], atol=1e-5)


@settings(max_examples=40)
@given(st.integers(0, 2**63 - 1), st.integers(0, 100_000), st.floats(0.1, 2.0), st.sampled_from([0.3, 0.9, 0.999, 1.0]), st.integers(1, 9))
def test_a_row_draws_the_same_alone_and_in_any_batch(seed: int, position: int, temperature: float, top_p: float, rows: int) -> None:
    logits = np.random.default_rng(seed % 1000).normal(0, 3, (rows, 500)).astype(np.float32)
    others = [row(position + index + 1, [3, 4], seed=seed + index, frequency=0.5, min_p=0.1) for index in range(rows - 1)]
    mine = row(position, seed=seed, temperature=temperature, top_p=top_p)
    alone = sample(logits[:1], [mine])
    assert sample(logits, [mine, *others])[0] == alone[0]
    assert sample(logits[:1], [mine]) == alone


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.2, 3.0), st.floats(0.05, 0.999))
def test_every_draw_is_in_the_nucleus(seed: int, temperature: float, top_p: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 4, (1, 800)).astype(np.float32)
    token = sample(logits, [row(seed, seed=seed, temperature=temperature, top_p=top_p)])[0]
    weights = np.exp((logits[0].astype(np.float64) - logits.max()) / temperature)
    more_probable = weights[weights > weights[token] * (1 + 1e-5)].sum() / weights.sum()
    assert more_probable < top_p + 1e-5


def test_a_whole_vocabulary_is_drawn_as_its_stretches_say() -> None:
    logits = np.zeros((1, 1000), np.float32)
    drawn = np.array([sample(logits, [row(position)])[0] for position in range(4000)])
    assert np.array_equal(drawn, np.floor([uniform(0, position) * 1000 for position in range(4000)]))


def test_noise_is_uniform_and_differs_by_seed_and_position() -> None:
    values = np.array([[uniform(seed, position) for position in range(64)] for seed in range(64)])
    assert abs(values.mean() - 0.5) < 0.02
    assert values.min() >= 0
    assert values.max() < 1
    assert len(np.unique(values)) == values.size
    assert uniform(-1, 5) == uniform(2**64 - 1, 5)
    assert uniform(7, 3) == 0.42056992093657886
