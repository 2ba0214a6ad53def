"""The port of share links. A share is frozen when it is made, and gone when it is revoked or its conversation is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from antiphon.core.ids import ConversationId, ShareId, TenantId, UserId
from antiphon.core.messages import Role
from antiphon.stores.conversations.base import Owner


@dataclass(frozen=True, slots=True)
class SharedMessage:
    role: Role
    content: str
    model: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Share:
    """``token`` is the secret in the link; whoever reads the store can read the conversation itself."""

    id: ShareId
    tenant_id: TenantId
    user_id: UserId
    conversation_id: ConversationId
    token: str
    title: str
    messages: tuple[SharedMessage, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SharePage:
    shares: tuple[Share, ...]
    next_cursor: str | None


class Shares(Protocol):
    """Every method may raise ``StoreUnavailable`` or ``DiskFull``."""

    async def create(self, owner: Owner, conversation_id: ConversationId, *, share_id: ShareId, token: str, now: datetime) -> Share:
        """Freeze the path to the current leaf, as far as it is written; raises ``NotFound``, ``InvalidRequest`` when nothing is."""
        ...

    async def page(self, owner: Owner, *, limit: int, after: str | None) -> SharePage:
        """The owner's shares, newest first, without their messages. Raises ``BadCursor``."""
        ...

    async def read(self, token: str) -> Share:
        """The share behind a link; raises ``NotFound``."""
        ...

    async def revoke(self, owner: Owner, share_id: ShareId, *, now: datetime) -> None:
        """End a share at once; raises ``NotFound``."""
        ...
