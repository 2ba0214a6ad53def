"""A conversation as a file tells it, before it is ours: every reader's result, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from antiphon.core.messages import MessageError, MessageStatus, Role, TitleSource
from antiphon.stores.conversations.base import Feedback


class Unreadable(Exception):
    """One conversation, or one file, that cannot be imported. ``reason`` is a sentence for its owner."""

    def __init__(self, reason: str, source_id: str = "") -> None:
        self.reason = reason
        self.source_id = source_id
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a message cost where it was made; ``None`` is unknown."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A node as its file names it. One that is not ``visible`` is left out and its children move up to its parent.

    ``extra`` is a JSON object of what we do not know, or empty.
    """

    source_id: str
    parent_id: str | None
    role: Role
    content: str
    created_at: datetime | None = None
    visible: bool = True
    status: MessageStatus = MessageStatus.COMPLETE
    model: str | None = None
    requested_model: str | None = None
    finish_reason: str | None = None
    error: MessageError | None = None
    counts: Counts = Counts()
    feedback: Feedback | None = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class SourceConversation:
    """``source`` and ``source_id`` name it for ever, so that a second import finds the first. Messages stand in any order."""

    source: str
    source_id: str
    title: str
    messages: tuple[SourceMessage, ...]
    current_id: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    model: str | None = None
    pinned: bool = False
    archived: bool = False
    folder: str | None = None
    title_source: TitleSource = TitleSource.USER
    may_be_empty: bool = False
    extra: str = ""
    notes: tuple[str, ...] = field(default=())
