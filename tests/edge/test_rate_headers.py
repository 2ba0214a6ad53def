"""What callers are told of their limits, on sends and refusals."""

from __future__ import annotations

import pytest

from antiphon.core.errors import QuotaExhausted, RateLimited
from antiphon.core.limits import Cap, Measure, Rate, Standing
from antiphon.edge.problems import problem_headers, problem_of
from antiphon.edge.rate_headers import duration, rate_headers

TOKENS, KEY = Rate("user:u", Measure.TOKENS, 1000), Rate("key:k", Measure.TOKENS, 500)
REQUESTS = Rate("user:u", Measure.REQUESTS, 20)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1s"), (17_250, "17.25s"), (59_999, "59.999s"), (60_000, "1m0s"), (366_000, "6m6s")],
)
def test_durations_read_as_openai_writes_them(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_of_several_limits_on_one_measure_the_tightest_is_told() -> None:
    standings = (
        Standing(TOKENS, 100, 6000),
        Standing(REQUESTS, 1, 3000),
        Standing(KEY, 400, 48_000),
        Standing(Cap("user:u", "m", 3, 60), 1, 5),
    )
    assert dict(rate_headers(standings)) == {
        b"x-ratelimit-limit-requests": b"20",
        b"x-ratelimit-remaining-requests": b"19",
        b"x-ratelimit-reset-requests": b"3s",
        b"x-ratelimit-limit-tokens": b"500",
        b"x-ratelimit-remaining-tokens": b"100",
        b"x-ratelimit-reset-tokens": b"48s",
    }
    assert rate_headers(()) == ()


def test_a_refusal_tells_the_same_and_when_to_come_back() -> None:
    refusal = problem_of(RateLimited(retry_after_ms=1001, standings=(Standing(TOKENS, 1200, 72_000),)))
    assert (refusal.status, refusal.code, refusal.retry_after_ms) == (429, "rate_limited", 1001)
    headers = dict(problem_headers(refusal))
    assert headers[b"retry-after"] == b"2"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert problem_of(QuotaExhausted()).status == 429
