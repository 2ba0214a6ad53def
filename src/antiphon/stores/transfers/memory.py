"""Transfers in memory: the reference driver."""

from __future__ import annotations

from antiphon.core.ids import ConversationId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import find_conversation
from antiphon.stores.memory import MemoryState, StoredFeedback, StoredOrigin
from antiphon.stores.transfers.base import OUR_SOURCE, Origin, Transfers, WholeConversation
from antiphon.stores.transfers.ordering import parents_first


class MemoryTransfers(Transfers):
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def import_conversation(self, whole: WholeConversation) -> ConversationId | None:
        state, head, origin = self._state, whole.head, whole.origin
        assert origin is not None
        owner = Owner(head.tenant_id, head.user_id)
        known = self._find(owner, origin)
        if known is not None:
            return known
        state.conversations[head.id] = head
        state.origins[head.id] = StoredOrigin(origin.source, origin.source_id, whole.extra)
        for message in whole.messages:
            state.add_message(message)
            state.index(head.id, message.id)
        if head.title:
            state.index(head.id, None)
        state.extras.update(whole.extras)
        for message_id, given in whole.feedback.items():
            state.feedback[head.user_id, message_id] = StoredFeedback(given, head.updated_at)
        return None

    def _find(self, owner: Owner, origin: Origin) -> ConversationId | None:
        for head in self._state.conversations.values():
            if (head.tenant_id, head.user_id) != (owner.tenant_id, owner.user_id) or head.id in self._state.deleted:
                continue
            stored = self._state.origins.get(head.id)
            same = stored is not None and (stored.source, stored.source_id) == (origin.source, origin.source_id)
            if same or (origin.source == OUR_SOURCE and head.id == origin.source_id):
                return head.id
        return None

    async def whole(self, owner: Owner, conversation_id: ConversationId) -> WholeConversation:
        state = self._state
        head = find_conversation(state, owner, conversation_id)
        messages = [state.messages[message_id] for message_id in state.message_ids.get(conversation_id, ())]
        stored = state.origins.get(conversation_id)
        given = ((message.id, state.feedback.get((owner.user_id, message.id))) for message in messages)
        return WholeConversation(
            head=head,
            messages=parents_first(messages),
            origin=None if stored is None else Origin(stored.source, stored.source_id),
            extra="" if stored is None else stored.extra,
            extras={message.id: state.extras[message.id] for message in messages if message.id in state.extras},
            feedback={message_id: kept.feedback for message_id, kept in given if kept is not None},
        )
