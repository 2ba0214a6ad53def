"""Texts beside the messages that a prompt may hold: summaries, instructions, memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from antiphon.core.ids import ConversationId, MemoryId, MessageId


@dataclass(frozen=True, slots=True)
class Summary:
    """What a branch said from its root up to and including ``through``. Stored once for a message, and never changed.

    ``source`` is the model that wrote it, or ``extract`` for sentences taken from the messages themselves.
    """

    conversation_id: ConversationId
    through: MessageId
    text: str
    source: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing a user wants to be remembered in all conversations."""

    id: MemoryId
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Preamble:
    """A user's instructions and memory as one conversation's prompts hold them. Equal texts have equal digests."""

    digest: str
    instructions: str
    memory: str
