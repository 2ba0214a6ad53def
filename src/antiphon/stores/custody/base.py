"""The port of custody: what happens to stored data besides chatting. Every method may raise ``StoreUnavailable`` or ``DiskFull``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from antiphon.core.ids import ConversationId, GenerationId, MessageId, TenantId, UserId
from antiphon.stores.conversations.base import Feedback, Owner


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to which thing, in ids alone. ``user_id`` is ``None`` for the server itself."""

    number: int
    tenant_id: TenantId
    user_id: UserId | None
    action: str
    subject: str
    at: datetime


@dataclass(frozen=True, slots=True)
class AuditPage:
    entries: tuple[AuditEntry, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class GivenFeedback:
    """A person's word on an answer, with the model that gave it."""

    user_id: UserId
    conversation_id: ConversationId
    message_id: MessageId
    model: str | None
    feedback: Feedback
    at: datetime


@dataclass(frozen=True, slots=True)
class FeedbackPage:
    feedback: tuple[GivenFeedback, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Purged:
    """What one purge took out of the store for good; the generations' logs are the caller's to discard. ``more``: call again."""

    conversations: int
    generation_ids: tuple[GenerationId, ...]
    more: bool


class Custody(Protocol):
    async def purge(self, *, deleted_before: datetime, limit: int) -> Purged:
        """Take at most ``limit`` conversations hidden before that moment out of every table, index, copy and backup in the store.

        One whose generation still runs waits. Numbers of what was used stay, without texts.
        """
        ...

    async def scrub(self) -> None:
        """Free what purges left in files: pages of the index, free pages, the write-ahead log. Quick when there is nothing."""
        ...

    async def expire_copies(self, *, now: datetime) -> None:
        """Remove backups that are older than they may be."""
        ...

    async def retire(self, *, now: datetime, limit: int) -> int:
        """Hide at most ``limit`` conversations that nobody has used for longer than their tenant keeps them; returns how many."""
        ...

    async def set_retention(self, by: Owner, days: int | None, *, now: datetime) -> None:
        """How long the tenant of ``by`` keeps an unused conversation; ``None`` is for ever. Raises ``NotFound``."""
        ...

    async def retention(self, tenant_id: TenantId) -> int | None: ...

    async def audit_page(self, tenant_id: TenantId, *, limit: int, after: str | None) -> AuditPage:
        """Newest first. Raises ``BadCursor``."""
        ...

    async def record(self, by: Owner, action: str, subject: str, *, now: datetime, by_server: bool = False) -> None:
        """Add an audit entry; ``subject`` is an id or a figure, never users' text. ``by_server``: nobody asked for it."""
        ...

    async def feedback_page(self, tenant_id: TenantId, *, limit: int, after: str | None) -> FeedbackPage:
        """All feedback of a tenant on living conversations, newest first. Raises ``BadCursor``."""
        ...
