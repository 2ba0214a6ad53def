"""What changes a conversation's head, as pure functions that every driver shares."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from antiphon.core.errors import StaleVersion
from antiphon.core.ids import MessageId
from antiphon.core.messages import Conversation, TitleSource
from antiphon.stores.conversations.base import ConversationPatch
from antiphon.stores.conversations.first_title import first_title


def patched(head: Conversation, patch: ConversationPatch, *, now: datetime) -> Conversation:
    """``head`` with ``patch`` applied and its version raised by one; raises ``StaleVersion``.

    Moving the leaf alone is a look at another branch, not activity: it leaves ``updated_at``, and so the place in the list.
    """
    if patch.if_version is not None and patch.if_version != head.version:
        raise StaleVersion(head.version)
    edited = any(value is not None for value in (patch.title, patch.model, patch.pinned, patch.archived, patch.folder))
    return replace(
        head,
        title=head.title if patch.title is None else patch.title,
        model=head.model if patch.model is None else patch.model,
        pinned=head.pinned if patch.pinned is None else patch.pinned,
        archived=head.archived if patch.archived is None else patch.archived,
        current_leaf_id=head.current_leaf_id if patch.current_leaf_id is None else patch.current_leaf_id,
        version=head.version + 1,
        updated_at=max(head.updated_at, now) if edited else head.updated_at,
        title_source=head.title_source if patch.title is None else TitleSource.USER,
        folder=head.folder if patch.folder is None else patch.folder or None,
    )


def suggested(head: Conversation, title: str) -> Conversation:
    """``head`` with a title that nobody typed, unless a person named it. The list's order stays."""
    if head.title_source is TitleSource.USER or not title:
        return head
    return replace(head, title=title, version=head.version + 1)


def after_accept(head: Conversation, leaf: MessageId, user_text: str | None, *, now: datetime) -> Conversation:
    """``head`` once a turn is accepted: the leaf moves to the answer, and an untitled conversation gets its first title."""
    return replace(
        head,
        title=head.title or first_title(user_text or ""),
        current_leaf_id=leaf,
        version=head.version + 1,
        updated_at=max(head.updated_at, now),
    )
