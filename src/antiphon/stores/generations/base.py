"""The port of generations. It shares its database with conversations, so that a turn is accepted in one transaction.

Terminal statuses are absorbing; every write of a runner is a compare-and-set on ``epoch`` and raises ``StaleEpoch``
when it was overtaken. Every method may raise ``StoreUnavailable`` or ``DiskFull``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from antiphon.core.generation import Generation, GenerationStatus, TurnParams, Usage
from antiphon.core.ids import ConversationId, GenerationId, KeyId, MessageId, TenantId
from antiphon.core.limits import Standing
from antiphon.core.messages import MessageError, PromptRecord
from antiphon.core.prompts import Preamble, Summary
from antiphon.core.tenancy import Band
from antiphon.core.usage import UsageRecord
from antiphon.stores.conversations.base import Owner


@dataclass(frozen=True, slots=True)
class CurrentLeaf:
    """Parent rule: answer under whatever is the conversation's current leaf when the transaction runs."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """``scope`` is (tenant, principal, method, route); ``fingerprint`` is SHA-256 of the canonical request, in hex."""

    scope: str
    key: str
    fingerprint: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class NewUserMessage:
    """Text from a person, as a child of ``parent`` (an assistant message, ``None`` for a new root, or the current leaf)."""

    message_id: MessageId
    parent: MessageId | None | CurrentLeaf
    content: str
    content_tokens: int | None


@dataclass(frozen=True, slots=True)
class RegenerateUnder:
    """No new text: another answer under this user message."""

    user_message_id: MessageId


@dataclass(frozen=True, slots=True)
class ContinueMessage:
    """Go on writing this assistant message, which must be a terminal one of ours with ``can_continue`` status."""

    message_id: MessageId


@dataclass(frozen=True, slots=True)
class TurnToAccept:
    """Everything the accept transaction needs. ``message_id`` is the placeholder's (unused for ``ContinueMessage``)."""

    owner: Owner
    conversation_id: ConversationId
    what: NewUserMessage | RegenerateUnder | ContinueMessage
    message_id: MessageId
    generation_id: GenerationId
    model: str
    requested_model: str
    params: TurnParams
    plan: str
    key_id: KeyId | None
    idempotency: IdempotencyKey | None
    now: datetime
    pool: str = ""
    """Stored with the generation: the pool that serves ``model``."""
    route_rule: str = ""
    route_reason: str = ""
    prompt: PromptRecord | None = None
    """What the model is going to read; ``None``: nobody knows yet."""
    preamble: Preamble | None = None
    summary: Summary | None = None
    """Texts that ``prompt`` names and that may not be stored yet."""
    band: Band | None = None
    """Stored with the generation: its key's own."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The durable ids of a turn. ``user_message_id`` is the parent's where nothing new was written by a person.

    ``standings``: where its sender stands with their limits, told once and not kept.
    """

    conversation_id: ConversationId
    user_message_id: MessageId | None
    message_id: MessageId
    generation_id: GenerationId
    replayed: bool = False
    standings: Sequence[Standing] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class FinishedGeneration:
    """The end of a generation, written in one transaction with its message and its outbox row.

    ``text`` is the whole text of the message, what it held before a *Continue* included. ``content_tokens`` is that text's
    length in the serving model's tokens, for later prompts, where it is known.
    """

    generation_id: GenerationId
    epoch: int
    status: GenerationStatus
    text: str
    finish_reason: str | None
    usage: Usage
    ttft_ms: int | None
    duration_ms: int
    error: MessageError | None
    outbox_payload: str
    now: datetime
    content_tokens: int | None = None
    reasoning: str = ""
    """What the model thought, a part before a *Continue* included."""
    prompt: PromptRecord | None = None
    """What it read, where that was decided after the turn was accepted."""


class Generations(Protocol):
    async def find_replay(self, idempotency: IdempotencyKey, *, now: datetime) -> Accepted | None:
        """The turn this key already accepted, with ``replayed`` set; raises ``IdempotencyMismatch`` for another body."""
        ...

    async def accept(self, turn: TurnToAccept) -> Accepted:
        """Insert user message, placeholder, generation (``queued``) and idempotency row; move the leaf; durable on return.

        Raises ``NotFound`` (conversation, parent), ``ParentStreaming`` (the parent, or the message to continue, is still
        being written), ``InvalidRequest`` (text under a user message, regenerate under an assistant message, continue of a
        complete or user message), ``IdempotencyMismatch``. A key seen before answers with that turn, ``replayed`` set.
        """
        ...

    async def now(self) -> datetime:
        """The store's clock. Leases are set and judged by it alone, so that processes whose clocks differ agree on them."""
        ...

    async def get(self, owner: Owner, generation_id: GenerationId) -> Generation: ...

    async def claim(self, generation_id: GenerationId, *, now: datetime, lease_until: datetime) -> Generation | None:
        """Take a ``queued`` generation, or a ``running`` one whose lease ended: epoch + 1, ``running``. ``None``: not to be had.

        ``now`` and ``lease_until`` are times of the store's clock, here and below.
        """
        ...

    async def heartbeat(self, generation_id: GenerationId, epoch: int, *, lease_until: datetime) -> bool:
        """Extend the lease; returns whether a cancel was requested."""
        ...

    async def checkpoint(self, generation_id: GenerationId, epoch: int, *, text: str, seq: int, usage: Usage) -> None:
        """Keep the whole text shown so far (``prior_text`` included), the log's ``seq`` behind it, and what it has cost.

        Not necessarily on stable storage when it returns.
        """
        ...

    async def finalise(self, finished: FinishedGeneration) -> None:
        """End generation and message once, add the outbox row; durable on return. A second call raises ``StaleEpoch``.

        A generation of a deleted conversation ends like any other, so that what it cost is accounted; nobody can read it.
        """
        ...

    async def add_usage(self, tenant_id: TenantId, generation_id: GenerationId, payload: str, *, now: datetime) -> None:
        """An outbox row for a generation that is kept elsewhere, in place of what was kept of its usage; harmless when it is there."""
        ...

    async def keep_usage(self, records: Sequence[UsageRecord], *, now: datetime) -> None:
        """What generations that are kept elsewhere have cost so far, each in place of what was kept of it before.

        Not necessarily on stable storage when it returns. ``now`` is a time of the store's clock.
        """
        ...

    async def left_usage(self, *, before: datetime, limit: int) -> tuple[UsageRecord, ...]:
        """What was kept before that moment and not since, the longest ago first: their server died. Across tenants."""
        ...

    async def request_cancel(self, owner: Owner, generation_id: GenerationId, *, now: datetime) -> Generation:
        """Flag a cancel for whoever runs it; a terminal generation is returned unchanged."""
        ...

    async def due(self, *, now: datetime, limit: int) -> tuple[GenerationId, ...]:
        """Generations to claim: ``queued``, or ``running`` with an ended lease, oldest first. Across tenants."""
        ...

    async def opened(self, *, limit: int) -> tuple[Generation, ...]:
        """Generations that are not terminal, the oldest first. Across tenants."""
        ...

    async def count_open(self) -> int:
        """Generations that are not terminal, across tenants."""
        ...
