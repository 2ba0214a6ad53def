"""The port of conversations. Each method is one atomic act; unknown and foreign ids raise the same ``NotFound``.

Every method may raise ``StoreUnavailable`` or ``DiskFull``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from antiphon.core.ids import ConversationId, GenerationId, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation, Message, TreeNode


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rows a call may see: always a tenant and a user of it."""

    tenant_id: TenantId
    user_id: UserId


@dataclass(frozen=True, slots=True)
class ConversationPage:
    conversations: tuple[Conversation, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class PathPage:
    """Messages root → leaf (the last ``limit`` of them), and the siblings of each, in order of creation.

    ``next_cursor`` is a message id to pass as ``before`` for the messages above, ``None`` at the root. ``ratings`` are the owner's own,
    of those messages that have one.
    """

    messages: tuple[Message, ...]
    siblings: Mapping[MessageId, tuple[MessageId, ...]]
    next_cursor: MessageId | None
    ratings: Mapping[MessageId, int]


@dataclass(frozen=True, slots=True)
class ConversationPatch:
    """Fields to change; ``None`` leaves a field as it is. ``if_version`` guards the change (``StaleVersion``)."""

    title: str | None = None
    model: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    current_leaf_id: MessageId | None = None
    if_version: int | None = None
    folder: str | None = None
    """The empty text takes the conversation out of its folder."""


@dataclass(frozen=True, slots=True)
class ConversationFilter:
    """Which conversations a page lists; ``None`` does not choose."""

    pinned: bool | None = None
    archived: bool | None = None
    folder: str | None = None


EVERYTHING = ConversationFilter()


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    conversations: int


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message, or the title where ``message_id`` is ``None``. ``snippet`` is HTML: escaped text with ``<mark>`` round the terms."""

    conversation_id: ConversationId
    message_id: MessageId | None
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    hits: tuple[SearchHit, ...]
    next_cursor: str | None


class Conversations(Protocol):
    async def create(self, conversation: Conversation) -> None:
        """Insert a new, empty conversation; durable on return."""
        ...

    async def get(self, owner: Owner, conversation_id: ConversationId) -> Conversation: ...

    async def page(self, owner: Owner, *, limit: int, after: str | None, only: ConversationFilter = EVERYTHING) -> ConversationPage:
        """Not deleted, not temporary, newest ``updated_at`` first. Raises ``BadCursor`` for a cursor that is not ours."""
        ...

    async def folders(self, owner: Owner) -> tuple[Folder, ...]:
        """The folders that hold a conversation, by name."""
        ...

    async def search(self, owner: Owner, question: str, *, limit: int, after: str | None) -> SearchPage:
        """Titles and finished texts that hold every term of ``question`` (see ``search_text``), whatever it is made of.

        The newest 1,000 that match come first, the best of them before the others; then the next 1,000. Raises ``BadCursor``.
        """
        ...

    async def update(self, owner: Owner, conversation_id: ConversationId, patch: ConversationPatch, *, now: datetime) -> Conversation:
        """Apply ``patch`` and raise ``version`` by one. A leaf of another conversation raises ``NotFound``."""
        ...

    async def suggest_title(self, owner: Owner, conversation_id: ConversationId, title: str) -> Conversation:
        """Name the conversation unless a person has; returns it with the title it has now."""
        ...

    async def delete(self, owner: Owner, conversation_id: ConversationId, *, now: datetime) -> tuple[GenerationId, ...]:
        """Hide the conversation, and end its shares, at once; returns its generations that are not terminal, for the caller to stop."""
        ...

    async def delete_all(self, owner: Owner, *, now: datetime) -> tuple[GenerationId, ...]:
        """``delete`` for every conversation of the owner, in one act."""
        ...

    async def path(
        self, owner: Owner, conversation_id: ConversationId, *, leaf: MessageId | None, limit: int, before: MessageId | None
    ) -> PathPage:
        """The path to ``leaf`` (default: the current leaf; if that is an inner node, on to its newest descendant)."""
        ...

    async def branch(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId, *, last: int) -> tuple[Message, ...]:
        """The ``last`` messages of the path to ``leaf``, root side first; it costs what it returns, however long the path is."""
        ...

    async def branch_ids(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[MessageId, ...]:
        """The ids root → ``leaf``."""
        ...

    async def texts(self, owner: Owner, conversation_id: ConversationId, message_ids: Sequence[MessageId]) -> tuple[Message, ...]:
        """Those messages of a conversation, in that order; raises ``NotFound`` for one it does not have."""
        ...

    async def tree(self, owner: Owner, conversation_id: ConversationId) -> tuple[TreeNode, ...]:
        """Every node of the conversation, in order of creation."""
        ...

    async def message(self, owner: Owner, message_id: MessageId) -> Message: ...

    async def put_feedback(self, owner: Owner, message_id: MessageId, feedback: Feedback, *, now: datetime) -> None:
        """Store or replace the user's feedback on an assistant message; rating 0 removes it."""
        ...


@dataclass(frozen=True, slots=True)
class Feedback:
    rating: int
    reasons: tuple[str, ...] = ()
    comment: str = ""
