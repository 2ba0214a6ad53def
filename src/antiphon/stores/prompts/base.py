"""The port of what prompts are made of beside messages: summaries, preambles, and token counts of models other than the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.prompts import Preamble, Summary
from antiphon.stores.conversations.base import Owner


class Prompts(Protocol):
    """All of it goes with its conversation. Every method raises ``NotFound`` for a conversation that is not the owner's or is gone,
    and may raise ``StoreUnavailable`` or ``DiskFull``.

    Preambles are written by ``Generations.accept``, in the turn's own transaction.
    """

    async def summaries(self, owner: Owner, conversation_id: ConversationId) -> tuple[Summary, ...]:
        """Every summary of the conversation, of whichever branch, in no order."""
        ...

    async def add_summary(self, owner: Owner, summary: Summary) -> None:
        """Store a summary; the first one through a message stays. Raises ``NotFound`` for a message that is not there."""
        ...

    async def preamble(self, owner: Owner, conversation_id: ConversationId, digest: str) -> Preamble | None: ...

    async def counts(self, owner: Owner, conversation_id: ConversationId, model: str) -> Mapping[MessageId, int]:
        """Stored lengths of messages' contents in ``model``'s tokens."""
        ...

    async def add_counts(self, owner: Owner, conversation_id: ConversationId, model: str, counts: Mapping[MessageId, int]) -> None:
        """Store lengths; of messages that have one it stays. Not necessarily on stable storage when it returns."""
        ...
