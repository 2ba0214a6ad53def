"""Summaries, preambles and counts in memory: the reference driver."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.prompts import Preamble, Summary
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import find_conversation, find_message
from antiphon.stores.memory import MemoryState


class MemoryPrompts:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def summaries(self, owner: Owner, conversation_id: ConversationId) -> tuple[Summary, ...]:
        find_conversation(self._state, owner, conversation_id)
        return tuple(summary for (place, _), summary in self._state.summaries.items() if place == conversation_id)

    async def add_summary(self, owner: Owner, summary: Summary) -> None:
        find_conversation(self._state, owner, summary.conversation_id)
        find_message(self._state, summary.conversation_id, summary.through)
        self._state.add_summary(summary)

    async def preamble(self, owner: Owner, conversation_id: ConversationId, digest: str) -> Preamble | None:
        find_conversation(self._state, owner, conversation_id)
        return self._state.preambles.get((conversation_id, digest))

    async def counts(self, owner: Owner, conversation_id: ConversationId, model: str) -> Mapping[MessageId, int]:
        find_conversation(self._state, owner, conversation_id)
        return dict(self._state.token_counts.get((conversation_id, model), {}))

    async def add_counts(self, owner: Owner, conversation_id: ConversationId, model: str, counts: Mapping[MessageId, int]) -> None:
        find_conversation(self._state, owner, conversation_id)
        known = self._state.token_counts.setdefault((conversation_id, model), {})
        for message_id, tokens in counts.items():
            find_message(self._state, conversation_id, message_id)
            known.setdefault(message_id, tokens)
