"""The only map from errors to HTTP statuses, and the three shapes an error is told in.

Shapes: ``application/problem+json`` (RFC 9457) for the API, ``{"error": …}`` for the OpenAI routes, and the ``error``
event inside a stream. An unexpected exception is told as ``internal`` without detail; what happened is only in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from antiphon.core import errors
from antiphon.core.errors import (
    AntiphonError,
    FieldFault,
    GenerationFailed,
    InvalidRequest,
    Limited,
    PromptTooLong,
    Refused,
    StaleVersion,
)
from antiphon.core.events import Failed
from antiphon.edge.rate_headers import rate_headers

STATUS: Mapping[type[AntiphonError], int] = MappingProxyType(
    {
        errors.BadJson: 400,
        errors.BadCursor: 400,
        errors.InvalidText: 400,
        errors.Unauthenticated: 401,
        errors.Forbidden: 403,
        errors.NotFound: 404,
        errors.ParentStreaming: 409,
        errors.Conflict: 409,
        errors.ModelGone: 409,
        errors.StaleVersion: 412,
        errors.BodyTooLarge: 413,
        errors.MessageTooLarge: 413,
        errors.PromptTooLong: 413,
        errors.MediaType: 415,
        errors.InvalidRequest: 422,
        errors.IdempotencyMismatch: 422,
        errors.RateLimited: 429,
        errors.QuotaExhausted: 429,
        errors.ConcurrencyLimited: 429,
        errors.HighDemand: 429,
        errors.NoCapacity: 503,
        errors.Draining: 503,
        errors.StoreUnavailable: 503,
        errors.DiskFull: 507,
        # A generation that fails before its HTTP answer began; inside a stream these are ``error`` events.
        errors.QueueTimeout: 503,
        errors.EngineFailed: 503,
        errors.Interrupted: 503,
        errors.Moderated: 403,
        errors.Deleted: 404,
    }
)

_TITLES: Mapping[int, str] = MappingProxyType(
    {
        400: "Bad request",
        401: "Not signed in",
        403: "Not allowed",
        404: "Not found",
        405: "Method not allowed",
        409: "Conflict",
        412: "Changed meanwhile",
        413: "Too large",
        415: "Unsupported media type",
        422: "Invalid request",
        429: "Ask again later",
        500: "Internal error",
        503: "Unavailable",
        507: "Disk full",
    }
)

_OPENAI_TYPES: Mapping[int, str] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
)

Value = str | int | list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, ready to be told. ``extra`` are members that only some codes have."""

    status: int
    code: str
    detail: str
    retry_after_ms: int | None = None
    retryable: bool = False
    extra: Mapping[str, Value] = field(default_factory=dict[str, Value])
    headers: tuple[tuple[bytes, bytes], ...] = ()


INTERNAL = Problem(500, "internal", "Something went wrong on our side.", retryable=True)
NOT_FOUND = Problem(404, errors.NotFound.code, errors.NotFound.default_detail)
BAD_HOST = Problem(400, "bad_request", "A request names its host exactly once.")
FOREIGN_HOST = Problem(
    403, errors.Forbidden.code, "This server answers to this machine's own names only; set server.public_url to give it another."
)


def problem_of(error: BaseException) -> Problem:
    """What to tell about ``error``; anything that is not ours becomes ``INTERNAL``."""
    if isinstance(error, Refused):
        return Problem(
            status=_status_of(error),
            code=error.code,
            detail=error.detail,
            retry_after_ms=error.retry_after_ms,
            retryable=error.retryable,
            extra=_extra_of(error),
            headers=rate_headers(error.standings) if isinstance(error, Limited) else (),
        )
    if isinstance(error, GenerationFailed):
        return Problem(_status_of(error), error.code, error.detail, retryable=error.retryable)
    return INTERNAL


def method_not_allowed(allow: str) -> Problem:
    """405 with the methods that are allowed, as in an ``Allow`` header."""
    headers = ((b"allow", allow.encode("ascii")),) if allow else ()
    return Problem(405, "method_not_allowed", "This address does not take this method.", headers=headers)


def invalid_request(faults: tuple[FieldFault, ...]) -> Problem:
    """422 with every fault."""
    return problem_of(InvalidRequest(faults))


def problem_body(problem: Problem, request_id: str) -> bytes:
    """The JSON of an ``application/problem+json`` answer."""
    body: dict[str, Value] = {
        "type": "about:blank",
        "title": _TITLES.get(problem.status, "Error"),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "request_id": request_id,
        **problem.extra,
    }
    if problem.retry_after_ms is not None:
        body["retry_after_ms"] = problem.retry_after_ms
    return msgspec.json.encode(body)


def openai_body(problem: Problem) -> bytes:
    """The JSON of an error as OpenAI's clients read it; ``param`` is the first faulty field."""
    return msgspec.json.encode({"error": openai_error(problem)})


def openai_error(problem: Problem) -> dict[str, str | None]:
    """The members of OpenAI's ``error`` object."""
    kind = _OPENAI_TYPES.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    faults = problem.extra.get("errors")
    first = faults[0] if isinstance(faults, list) and faults else None
    message = problem.detail if first is None else f"{first['path']}: {first['reason']}"
    return {"message": message, "type": kind, "code": problem.code, "param": None if first is None else first["path"]}


def problem_headers(problem: Problem) -> list[tuple[bytes, bytes]]:
    """Headers that belong to the problem itself; ``Retry-After`` is in whole seconds, rounded up."""
    headers = list(problem.headers)
    if problem.retry_after_ms is not None:
        headers.append((b"retry-after", str(-(-problem.retry_after_ms // 1000)).encode("ascii")))
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def failed_event(error: BaseException) -> Failed:
    """The ``error`` event that ends a stream."""
    problem = problem_of(error)
    return Failed(code=problem.code, message=problem.detail, retryable=problem.retryable, retry_after_ms=problem.retry_after_ms)


def _status_of(error: AntiphonError) -> int:
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


def _extra_of(error: Refused) -> Mapping[str, Value]:
    if isinstance(error, InvalidRequest):
        return {"errors": [{"path": fault.path, "reason": fault.reason} for fault in error.faults]}
    if isinstance(error, PromptTooLong):
        return {"prompt_tokens": error.prompt_tokens, "limit_tokens": error.limit_tokens}
    if isinstance(error, StaleVersion):
        return {"current_version": error.current_version}
    return {}
