"""One accepted request at the gateway, from its acceptance to its last event."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from antiphon.core.generation import FinishReason
from antiphon.core.telemetry import CACHED_TOKENS, OUTPUT_TOKENS, PROMPT_TOKENS, WASTED_TOKENS, Telemetry
from antiphon.engines.base import EngineRequest, EngineUsage, Finished
from antiphon.inference.ask import Ask
from antiphon.inference.mailbox import Mailbox
from antiphon.inference.shell import ReplicaShell
from antiphon.inference.wire import FinishedFrame


@dataclass(slots=True, eq=False)
class Ticket:
    """``request`` is ``None`` until it comes."""

    ask: Ask
    entered_at: float
    number: int
    request: EngineRequest | None = None
    mailbox: Mailbox = field(default_factory=Mailbox)
    replica: ReplicaShell[Ticket] | None = None
    handle: int = 0
    queued_s: float = 0.0
    last_token_at: float | None = None
    read_tokens: int = 0
    ended: bool = False
    probe: bool = False

    def finished(self, frame: FinishedFrame, pool: str, telemetry: Telemetry) -> Finished:
        """Its last event, the wait in the pool's line included; what it took is counted."""
        reason, usage = FinishReason(frame.reason), frame.usage
        already = 0 if self.request is None else len(self.request.already_ids)
        computed = usage.output_tokens - already
        telemetry.count(PROMPT_TOKENS, usage.prompt_tokens, pool)
        telemetry.count(CACHED_TOKENS, usage.cached_tokens, pool)
        telemetry.count(OUTPUT_TOKENS, computed, pool)
        if reason is FinishReason.CANCELLED:
            telemetry.count(WASTED_TOKENS, max(computed - self.read_tokens, 0), pool)
        return Finished(reason, replace(usage, queued_ms=usage.queued_ms + round(1000 * self.queued_s)), frame.text)

    def cancelled(self, now: float) -> Finished:
        """The last event of one that was stopped while it waited."""
        already = 0 if self.request is None else len(self.request.already_ids)
        return Finished(FinishReason.CANCELLED, EngineUsage(0, 0, already, round(1000 * (now - self.entered_at)), 0, 0, 0))

    def token_gap_s(self, now: float) -> float | None:
        """Since its last token; ``None`` at the first."""
        before, self.last_token_at = self.last_token_at, now
        return None if before is None else now - before
