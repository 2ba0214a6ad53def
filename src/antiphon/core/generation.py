"""One run of a model that fills one assistant message, from request to usage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from antiphon.core.ids import ConversationId, GenerationId, KeyId, MessageId, TenantId, UserId
from antiphon.core.messages import MessageError
from antiphon.core.tenancy import Band


class GenerationStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def terminal(self) -> bool:
        """Whether this status is absorbing."""
        return self not in {GenerationStatus.QUEUED, GenerationStatus.RUNNING}


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    CONTENT_FILTER = "content_filter"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. ``temperature`` 0 is greedy; noise is a pure function of (seed, position).

    In this order: penalties on the tokens of the answer so far, ``logit_bias``, temperature, ``min_p`` (a share of the
    most probable token's probability), ``top_k``, ``top_p``; everything after ``seed`` is off by default.
    """

    max_tokens: int
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Divides a positive and multiplies a negative logit of a token that was in the answer."""
    presence_penalty: float = 0.0
    """Taken from the logit of a token that was in the answer."""
    frequency_penalty: float = 0.0
    """Taken from the logit of a token once for each time it was in the answer."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids and what is added to their logits."""
    logprobs: int | None = None
    """``None`` for no log-probabilities; else the drawn token's own and those of this many most probable ones."""


@dataclass(frozen=True, slots=True)
class TurnParams:
    """What a caller asked for; ``None`` means the default of plan and model."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What one generation cost. Tokens are the serving model's; times are milliseconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queued_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    accelerator_ms: int = 0
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation's row. ``epoch`` is the fencing number, raised by each claim."""

    id: GenerationId
    tenant_id: TenantId
    user_id: UserId
    conversation_id: ConversationId
    message_id: MessageId
    user_message_id: MessageId | None
    status: GenerationStatus
    epoch: int
    model: str
    requested_model: str
    params: TurnParams
    created_at: datetime
    key_id: KeyId | None = None
    plan: str = ""
    band: Band | None = None
    """The band of its key, where that has one of its own."""
    pool: str = ""
    """The pool that serves it; two pools may serve the same ``model``."""
    route_rule: str = ""
    """Why it is not served as it was asked: ``downgrade`` (a smaller model), ``output_cap`` (a shorter answer); empty: it is."""
    route_reason: str = ""
    prior_text: str = ""
    """Text the message already held when this generation was accepted (Continue); counts as shown."""
    checkpoint_text: str = ""
    checkpoint_seq: int = 0
    lease_until: datetime | None = None
    cancel_requested: bool = False
    finish_reason: str | None = None
    usage: Usage = Usage()
    ttft_ms: int | None = None
    duration_ms: int | None = None
    error: MessageError | None = None
    finished_at: datetime | None = None
