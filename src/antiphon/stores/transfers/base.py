"""The port of transfers: conversations as wholes. Every method may raise ``StoreUnavailable`` or ``DiskFull``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.messages import Conversation, Message
from antiphon.stores.conversations.base import Feedback, Owner

OUR_SOURCE = "antiphon"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a conversation came from. Unique per owner, so a second import of it finds the first."""

    source: str
    source_id: str


@dataclass(frozen=True, slots=True)
class WholeConversation:
    """A conversation with everything that belongs to it. Parents stand before their children.

    ``extra`` and ``extras`` are JSON objects of members that its source had and we do not know; empty or absent where there are
    none. ``origin`` is ``None`` for a conversation that began here.
    """

    head: Conversation
    messages: tuple[Message, ...]
    origin: Origin | None = None
    extra: str = ""
    extras: Mapping[MessageId, str] = field(default_factory=dict[MessageId, str])
    feedback: Mapping[MessageId, Feedback] = field(default_factory=dict[MessageId, Feedback])


class Transfers(Protocol):
    async def import_conversation(self, whole: WholeConversation) -> ConversationId | None:
        """Insert a conversation from elsewhere, durable and findable on return; ``origin`` is set.

        ``None`` when it is new. Where the owner has a living conversation of that origin, or, for an origin of ours, with that
        very id, nothing is written and its id is the answer. One that was deleted meanwhile does not count.
        """
        ...

    async def whole(self, owner: Owner, conversation_id: ConversationId) -> WholeConversation:
        """One snapshot of a conversation, to export it. Raises ``NotFound``."""
        ...
