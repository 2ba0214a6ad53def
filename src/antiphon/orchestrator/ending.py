"""How generations end, and what they cost until then."""

from __future__ import annotations

from dataclasses import dataclass, replace

from antiphon.core.clock import Clock
from antiphon.core.errors import Deleted, EngineFailed, GenerationFailed, Interrupted
from antiphon.core.events import Done, Failed, LogEntry
from antiphon.core.generation import FinishReason, Generation, GenerationStatus, Usage
from antiphon.core.messages import MessageError
from antiphon.core.usage import money
from antiphon.engines.base import EngineUsage, Finished

_INTERRUPTED = "The answer was interrupted. What was written is kept."


@dataclass(frozen=True, slots=True)
class Ending:
    """The last words about a generation. ``estimated``: the engine's own count of ``usage`` was lost."""

    status: GenerationStatus
    usage: Usage
    finish_reason: str | None = None
    error: MessageError | None = None
    estimated: bool = False


def as_reported(engine: EngineUsage) -> Usage:
    """The engine's count, as it stands; what it costs is not known yet."""
    return Usage(
        prompt_tokens=engine.prompt_tokens,
        cached_tokens=engine.cached_tokens,
        output_tokens=engine.output_tokens,
        queued_ms=engine.queued_ms,
        prefill_ms=engine.prefill_ms,
        decode_ms=engine.decode_ms,
        accelerator_ms=engine.accelerator_ms,
    )


def completed(finished: Finished, usage: Usage) -> Ending:
    """The engine came to an end by itself."""
    cancelled = finished.reason is FinishReason.CANCELLED
    status = GenerationStatus.CANCELLED if cancelled else GenerationStatus.COMPLETE
    return Ending(status, usage, finish_reason=finished.reason.value)


def cancelled(usage: Usage) -> Ending:
    """Somebody stopped it."""
    return Ending(GenerationStatus.CANCELLED, usage, finish_reason=FinishReason.CANCELLED.value, estimated=True)


def failed(failure: GenerationFailed, usage: Usage, *, text: str) -> Ending:
    """It could not be brought to its end. With ``text`` on the page it is interrupted, so that it can be continued."""
    if text and isinstance(failure, EngineFailed):
        failure = Interrupted(_INTERRUPTED)
    status = GenerationStatus.INTERRUPTED if text else GenerationStatus.FAILED
    error = MessageError(failure.code, failure.detail, failure.retryable)
    return Ending(status, usage, error=error, estimated=True)


def deleted(ending: Ending) -> Ending:
    """What readers are told where the conversation is gone; the row keeps ``ending``."""
    gone = Deleted("The conversation was deleted.")
    return replace(ending, error=MessageError(gone.code, gone.detail, gone.retryable))


def recorded(last: LogEntry, *, text: str) -> Ending:
    """The ending that a log's terminal entry already tells, for a row that missed it."""
    event = last.event
    assert isinstance(event, Done | Failed)
    if isinstance(event, Failed):
        status = GenerationStatus.INTERRUPTED if text else GenerationStatus.FAILED
        return Ending(status, Usage(), error=MessageError(event.code, event.message, event.retryable), estimated=True)
    status = GenerationStatus.CANCELLED if event.finish_reason == FinishReason.CANCELLED else GenerationStatus.COMPLETE
    usage = Usage(event.prompt_tokens, event.cached_tokens, event.output_tokens, event.queued_ms)
    return Ending(status, usage, finish_reason=event.finish_reason, estimated=True)


def terminal_event(generation: Generation, ending: Ending, *, ttft_ms: int | None, duration_ms: int) -> Done | Failed:
    """The one event that closes the log."""
    if ending.error is not None:
        return Failed(ending.error.code, ending.error.message, ending.error.retryable)
    return Done(
        finish_reason=ending.finish_reason or FinishReason.STOP.value,
        prompt_tokens=ending.usage.prompt_tokens,
        cached_tokens=ending.usage.cached_tokens,
        output_tokens=ending.usage.output_tokens,
        queued_ms=ending.usage.queued_ms,
        ttft_ms=ttft_ms,
        duration_ms=duration_ms,
        cost=money(ending.usage.cost),
        model=generation.model,
        requested_model=generation.requested_model,
    )


def stored_ending(generation: Generation) -> Ending:
    """The ending that a terminal row tells, for a log that missed it."""
    return Ending(generation.status, generation.usage, finish_reason=generation.finish_reason, error=generation.error)


class Meter:
    """Counts one generation's work as it arrives, for endings at which the engine's own account is lost.

    ``base_tokens`` of an earlier generation were context, not output; ``earlier_tokens`` are output of earlier epochs. ``known`` is what
    the store was told last: all there is until an engine is asked.
    """

    def __init__(self, clock: Clock, known: Usage | None = None) -> None:
        self._clock = clock
        self._known = known
        self._asked_at = clock.monotonic()
        self._begun_at: float | None = None
        self._token_at: float | None = None
        self._prompt_tokens = 0
        self._prompt_done = 0
        self._base_tokens = 0
        self._output_tokens = 0

    def asked(self, prompt_tokens: int, *, base_tokens: int, earlier_tokens: int) -> None:
        """A request goes out; what an earlier attempt counted is forgotten. Whose answer has begun has had the prompt read."""
        self._known = None
        self._asked_at, self._begun_at, self._token_at = self._clock.monotonic(), None, None
        self._prompt_tokens, self._prompt_done = prompt_tokens, prompt_tokens if earlier_tokens else 0
        self._base_tokens, self._output_tokens = base_tokens, earlier_tokens

    def remembered(self, output_tokens: int) -> None:
        """The log tells of so many tokens; the store may have been told of fewer."""
        if self._known is not None:
            self._known = replace(self._known, output_tokens=max(self._known.output_tokens, output_tokens))

    def prefilled(self, done_tokens: int) -> None:
        """The engine has begun and has computed so much of the prompt."""
        self._begin()
        self._prompt_done = max(self._prompt_done, min(done_tokens, self._prompt_tokens))

    def sampled(self, tokens: int) -> None:
        """The engine has yielded new tokens."""
        self._begin()
        self._prompt_done = self._prompt_tokens
        self._output_tokens += tokens
        if self._token_at is None:
            self._token_at = self._clock.monotonic()

    def measured(self) -> Usage:
        """Our own count: all that is known to have been computed."""
        if self._known is not None:
            return self._known
        now = self._clock.monotonic()
        begun = now if self._begun_at is None else self._begun_at
        token = now if self._token_at is None else self._token_at
        return Usage(
            prompt_tokens=self._prompt_done,
            output_tokens=self._output_tokens,
            queued_ms=round((begun - self._asked_at) * 1000),
            prefill_ms=round((token - begun) * 1000),
            decode_ms=round((now - token) * 1000),
        )

    def reported(self, usage: EngineUsage) -> Usage:
        """The engine's count, with an earlier generation's tokens as the context they were.

        The prompt counts once, also where it was read again after a restart: whole once this generation has a token.
        """
        queued_ms = self.measured().queued_ms
        output_tokens = max(0, usage.output_tokens - self._base_tokens)
        return Usage(
            prompt_tokens=self._prompt_tokens if output_tokens else min(usage.prompt_tokens, self._prompt_tokens),
            cached_tokens=usage.cached_tokens,
            output_tokens=output_tokens,
            queued_ms=max(usage.queued_ms, queued_ms),
            prefill_ms=usage.prefill_ms,
            decode_ms=usage.decode_ms,
            accelerator_ms=usage.accelerator_ms,
        )

    def _begin(self) -> None:
        if self._begun_at is None:
            self._begun_at = self._clock.monotonic()
