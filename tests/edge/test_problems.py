"""Every error has one status, and says it in three shapes."""

from __future__ import annotations

import json

import pytest

from antiphon.core import errors
from antiphon.core.errors import AntiphonError, FieldFault, GenerationFailed, HighDemand, InvalidRequest, PromptTooLong, Refused
from antiphon.edge.problems import INTERNAL, STATUS, failed_event, openai_error, problem_body, problem_headers, problem_of

INSIDE_ONLY = {errors.StaleEpoch, errors.ConfigErrors, errors.ModelUnusable, errors.Limited, Refused, GenerationFailed, AntiphonError}


def test_every_error_that_may_reach_a_caller_is_mapped() -> None:
    declared = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AntiphonError)}
    assert set(STATUS) == declared - INSIDE_ONLY


def test_a_wait_is_told_in_milliseconds_and_in_whole_seconds_up() -> None:
    for wait_ms, seconds in ((1, b"1"), (1000, b"1"), (1001, b"2")):
        problem = problem_of(HighDemand(retry_after_ms=wait_ms))
        assert json.loads(problem_body(problem, "req_1"))["retry_after_ms"] == wait_ms
        assert dict(problem_headers(problem))[b"retry-after"] == seconds
        assert failed_event(HighDemand(retry_after_ms=wait_ms)).retry_after_ms == wait_ms


def test_members_of_their_own() -> None:
    body = json.loads(problem_body(problem_of(PromptTooLong(prompt_tokens=9, limit_tokens=8)), "req_1"))
    assert (body["status"], body["code"], body["prompt_tokens"], body["limit_tokens"], body["request_id"]) == (
        413,
        "prompt_too_long",
        9,
        8,
        "req_1",
    )
    faults = problem_of(InvalidRequest([FieldFault("params.seed", "Too big.")]))
    assert json.loads(problem_body(faults, ""))["errors"] == [{"path": "params.seed", "reason": "Too big."}]
    assert openai_error(faults) == {
        "message": "params.seed: Too big.",
        "type": "invalid_request_error",
        "code": "invalid_request",
        "param": "params.seed",
    }


@pytest.mark.parametrize("error", [RuntimeError("/secret/path"), errors.StaleEpoch(), errors.ModelUnusable("/secret/path"), KeyError("x")])
def test_what_is_not_for_callers_stays_inside(error: Exception) -> None:
    assert problem_of(error) is INTERNAL
    assert "secret" not in failed_event(error).message
