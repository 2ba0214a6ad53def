"""Conversations are trees of messages; a turn is a user message and its reply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from antiphon.core.ids import ConversationId, GenerationId, MessageId, TenantId, UserId


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class MessageStatus(StrEnum):
    STREAMING = "streaming"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class MessageError:
    """Why a message is ``failed`` or ``interrupted``."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Snippet:
    """Words of an earlier message that is not in the window any more, brought back for one turn."""

    message_id: MessageId
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """What one turn's prompt is made of: decided when the turn is accepted, stored with its answer, and never changed.

    With the branch above it, it gives the same prompt for ever; the next turn on the branch goes on from it, so that the prompt
    only grows until it is trimmed. ``tokens`` are ``model``'s.
    """

    model: str
    start: MessageId
    """The oldest message in the window; the turn's own question where nothing earlier is."""
    omitted: int = 0
    """How many messages of the branch lie above the window."""
    summary: MessageId | None = None
    """The summary in the prompt speaks of the branch up to this message."""
    preamble: str = ""
    """Names the instructions and memory in the prompt (``Preamble.digest``); empty where there are none."""
    snippets: tuple[Snippet, ...] = ()
    tokens: int = 0
    trimmed: bool = False
    """Whether the window moved for this turn."""


@dataclass(frozen=True, slots=True)
class Message:
    """One node of a conversation's tree. ``parent_id`` never changes after creation.

    ``content_tokens`` is the content's length in the tokens of the model ``counted_by``. ``reasoning`` is what a model thought before
    its answer: shown apart, never sent back. ``prompt`` says what the model was given to read.
    """

    id: MessageId
    conversation_id: ConversationId
    parent_id: MessageId | None
    role: Role
    content: str
    status: MessageStatus
    created_at: datetime
    model: str | None = None
    requested_model: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    content_tokens: int | None = None
    cost: Decimal | None = None
    generation_id: GenerationId | None = None
    error: MessageError | None = None
    counted_by: str | None = None
    reasoning: str = ""
    prompt: PromptRecord | None = None


@dataclass(frozen=True, slots=True)
class TreeNode:
    id: MessageId
    parent_id: MessageId | None
    role: Role
    status: MessageStatus
    created_at: datetime


class TitleSource(StrEnum):
    """Who gave a conversation its title. One that a person gave is never replaced by another source."""

    AUTO = "auto"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation's head. ``current_leaf_id`` is a hint guarded by ``version``, which only grows."""

    id: ConversationId
    tenant_id: TenantId
    user_id: UserId
    title: str
    model: str | None
    current_leaf_id: MessageId | None
    version: int
    pinned: bool
    archived: bool
    temporary: bool
    created_at: datetime
    updated_at: datetime
    title_source: TitleSource = TitleSource.AUTO
    folder: str | None = None
