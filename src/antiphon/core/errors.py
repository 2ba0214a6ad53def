"""The one error tree. HTTP statuses exist only in ``edge/problems.py``.

AntiphonError
├── Refused                      the caller's request is answered with a refusal; nothing was written
│   ├── BadJson BadCursor InvalidText InvalidRequest MediaType BodyTooLarge MessageTooLarge
│   ├── Unauthenticated Forbidden NotFound
│   ├── ParentStreaming Conflict ModelGone StaleVersion IdempotencyMismatch
│   ├── PromptTooLong
│   ├── Limited: RateLimited QuotaExhausted ConcurrencyLimited       an allowance is used up for now
│   ├── HighDemand                                                  ask again later
│   └── NoCapacity Draining StoreUnavailable DiskFull                  cannot now
├── GenerationFailed             an accepted generation ends in ``error``
│   ├── EngineFailed             the engine died or broke its promise
│   ├── QueueTimeout Interrupted Moderated Deleted
├── StaleEpoch                   a writer was overtaken by a newer claim; it must stop without a trace
├── ConfigErrors                 start-up stops; every fault is listed
└── ModelUnusable                a model file or folder cannot be served; one clear sentence
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from antiphon.core.limits import Standing


class AntiphonError(Exception):
    """Root of all errors that Antiphon raises on purpose. ``code`` is stable and public."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class Refused(AntiphonError):
    """A request that was not accepted. ``detail`` is for people and never names internals."""

    default_detail: ClassVar[str] = "The request was refused."

    def __init__(self, detail: str | None = None, *, retry_after_ms: int | None = None) -> None:
        self.detail = detail or self.default_detail
        self.retry_after_ms = retry_after_ms
        super().__init__(self.detail)


class BadJson(Refused):
    code = "bad_json"
    default_detail = "The body is not valid JSON."


class BadCursor(Refused):
    code = "bad_cursor"
    default_detail = "This page cursor is not one of ours."


class InvalidText(Refused):
    code = "invalid_text"
    default_detail = "Text may not contain NUL or lone surrogates."


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One fault of a request: ``path`` in dotted form, ``reason`` as a sentence."""

    path: str
    reason: str


class InvalidRequest(Refused):
    code = "invalid_request"
    default_detail = "The request has invalid fields."

    def __init__(self, faults: Sequence[FieldFault], detail: str | None = None) -> None:
        self.faults = tuple(faults)
        super().__init__(detail)


class MediaType(Refused):
    code = "media_type"
    default_detail = "Send application/json."


class BodyTooLarge(Refused):
    code = "body_too_large"
    default_detail = "The body is larger than 1 MiB."


class MessageTooLarge(Refused):
    code = "message_too_large"
    default_detail = "A message may have at most 256 kB."


class PromptTooLong(Refused):
    code = "prompt_too_long"

    def __init__(self, *, prompt_tokens: int, limit_tokens: int, standing_tokens: int = 0) -> None:
        """``standing_tokens`` of them are the caller's instructions and memory, which every prompt holds."""
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens
        standing = f", {standing_tokens} of them for your instructions and memory" if standing_tokens else ""
        super().__init__(f"The prompt has {prompt_tokens} tokens{standing}; this model takes at most {limit_tokens}.")


class Unauthenticated(Refused):
    code = "unauthenticated"
    default_detail = "Sign in or send an API key."


class Forbidden(Refused):
    code = "forbidden"
    default_detail = "You may not do this."


class NotFound(Refused):
    code = "not_found"
    default_detail = "There is no such thing, or it is not yours."


class ParentStreaming(Refused):
    code = "parent_streaming"
    default_detail = "The parent message is still being written."


class Conflict(Refused):
    code = "conflict"
    default_detail = "This conflicts with the current state."


class ModelGone(Refused):
    code = "model_gone"
    default_detail = "This model is no longer served; choose another."


class StaleVersion(Refused):
    code = "stale_version"

    def __init__(self, current_version: int) -> None:
        self.current_version = current_version
        super().__init__(f"The conversation has changed; its version is {current_version}.")


class IdempotencyMismatch(Refused):
    code = "idempotency_mismatch"
    default_detail = "This idempotency key was used with another request."


class Limited(Refused):
    """An allowance is used up for now. ``standings`` are where the caller stands with all limits that were asked."""

    code = "rate_limited"
    retryable = True

    def __init__(self, detail: str | None = None, *, retry_after_ms: int | None = None, standings: Sequence[Standing] = ()) -> None:
        self.standings = tuple(standings)
        super().__init__(detail, retry_after_ms=retry_after_ms)


class RateLimited(Limited):
    default_detail = "Too many requests."


class QuotaExhausted(Limited):
    code = "quota_exhausted"
    default_detail = "The allowance is used up."


class ConcurrencyLimited(Limited):
    code = "concurrency_limited"
    default_detail = "Too many answers are being written at once."


class HighDemand(Refused):
    code = "high_demand"
    retryable = True
    default_detail = "Many people are asking right now."


class NoCapacity(Refused):
    code = "no_capacity"
    retryable = True
    default_detail = "No model is ready to answer."


class Draining(Refused):
    code = "draining"
    retryable = True
    default_detail = "This server is shutting down."


class StoreUnavailable(Refused):
    code = "store_unavailable"
    retryable = True
    default_detail = "The store cannot be reached."


class DiskFull(Refused):
    code = "disk_full"
    retryable = True
    default_detail = "The disk is full."


class GenerationFailed(AntiphonError):
    """An accepted generation that ends in ``error``; ``detail`` is shown to the reader."""

    code = "engine_failed"
    retryable = True

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class EngineFailed(GenerationFailed):
    code = "engine_failed"


class QueueTimeout(GenerationFailed):
    code = "queue_timeout"


class Interrupted(GenerationFailed):
    code = "interrupted"


class Moderated(GenerationFailed):
    code = "moderated"
    retryable = False


class Deleted(GenerationFailed):
    code = "deleted"
    retryable = False


class StaleEpoch(AntiphonError):
    """A write came from a claim that has been overtaken; the writer must stop and leave no trace."""

    code = "stale_epoch"


class ConfigErrors(AntiphonError):
    """Every fault of the configuration, each as ``section.key: reason``."""

    code = "config"

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"config: {path}: {reason}" for path, reason in faults))


class ModelUnusable(AntiphonError):
    """A model cannot be served; the message is one sentence for the person who added it."""

    code = "model_unusable"
