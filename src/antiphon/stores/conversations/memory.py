"""Conversations in memory: the reference driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from antiphon.core.errors import Conflict, FieldFault, InvalidRequest, NotFound
from antiphon.core.ids import ConversationId, GenerationId, MessageId
from antiphon.core.messages import Conversation, Message, Role, TreeNode
from antiphon.stores.conversations.base import (
    EVERYTHING,
    ConversationFilter,
    ConversationPage,
    ConversationPatch,
    Feedback,
    Folder,
    Owner,
    PathPage,
    SearchPage,
)
from antiphon.stores.conversations.head import patched, suggested
from antiphon.stores.conversations.paging import cursor_of, parse_page_cursor, parse_search_cursor, position_of
from antiphon.stores.conversations.search_text import SEARCH_WINDOW, Candidate, matches, page_of, terms_of
from antiphon.stores.conversations.tree import ConversationTree
from antiphon.stores.memory import MemoryState, StoredFeedback


class MemoryConversations:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def create(self, conversation: Conversation) -> None:
        if conversation.id in self._state.conversations:
            raise Conflict
        self._state.conversations[conversation.id] = conversation
        if conversation.title:
            self._state.index(conversation.id, None)

    async def get(self, owner: Owner, conversation_id: ConversationId) -> Conversation:
        return find_conversation(self._state, owner, conversation_id)

    async def page(self, owner: Owner, *, limit: int, after: str | None, only: ConversationFilter = EVERYTHING) -> ConversationPage:
        start = None if after is None else parse_page_cursor(after)
        state = self._state
        listed = sorted(
            (
                head
                for head in state.conversations.values()
                if _is_listed(state, owner, head)
                and (only.pinned is None or head.pinned == only.pinned)
                and (only.archived is None or head.archived == only.archived)
                and (only.folder is None or head.folder == only.folder)
                and (start is None or position_of(head) < start)
            ),
            key=position_of,
            reverse=True,
        )
        page = tuple(listed[:limit])
        return ConversationPage(page, cursor_of(position_of(page[-1])) if len(listed) > limit else None)

    async def folders(self, owner: Owner) -> tuple[Folder, ...]:
        heads = [head for head in self._state.conversations.values() if _is_owned(self._state, owner, head)]
        counted = Counter(head.folder for head in heads if head.folder is not None)
        return tuple(Folder(name, counted[name]) for name in sorted(counted))

    async def search(self, owner: Owner, question: str, *, limit: int, after: str | None) -> SearchPage:
        position = None if after is None else parse_search_cursor(after)
        terms = terms_of(question)
        window: list[Candidate] = []
        for (conversation_id, message_id), doc in sorted(self._state.docs.items(), key=lambda entry: -entry[1]):
            head = self._state.conversations[conversation_id]
            if not _is_listed(self._state, owner, head) or (position is not None and doc > position.start):
                continue
            text = head.title if message_id is None else self._state.messages[message_id].content
            if terms and len(window) < SEARCH_WINDOW and matches(terms, text):
                window.append(Candidate(doc, conversation_id, message_id, head.title, text))
        return page_of(terms, window, position, limit=limit)

    async def suggest_title(self, owner: Owner, conversation_id: ConversationId, title: str) -> Conversation:
        head = find_conversation(self._state, owner, conversation_id)
        return self._put(head, suggested(head, title))

    async def update(self, owner: Owner, conversation_id: ConversationId, patch: ConversationPatch, *, now: datetime) -> Conversation:
        head = find_conversation(self._state, owner, conversation_id)
        changed = patched(head, patch, now=now)
        if patch.current_leaf_id is not None:
            find_message(self._state, conversation_id, patch.current_leaf_id)
        return self._put(head, changed)

    def _put(self, before: Conversation, after: Conversation) -> Conversation:
        self._state.conversations[after.id] = after
        if before.title != after.title:
            self._state.index(after.id, None)
        return after

    async def delete(self, owner: Owner, conversation_id: ConversationId, *, now: datetime) -> tuple[GenerationId, ...]:
        find_conversation(self._state, owner, conversation_id)
        self._state.add_audit(owner, "conversation.delete", conversation_id, now)
        return self.hide(conversation_id, now)

    async def delete_all(self, owner: Owner, *, now: datetime) -> tuple[GenerationId, ...]:
        living = [head.id for head in self._state.conversations.values() if _is_owned(self._state, owner, head)]
        self._state.add_audit(owner, "conversations.delete_all", owner.user_id, now)
        return tuple(running for conversation_id in living for running in self.hide(conversation_id, now))

    def hide(self, conversation_id: ConversationId, now: datetime) -> tuple[GenerationId, ...]:
        """Hide one conversation, end its shares, flag its open generations; returns those."""
        state = self._state
        state.deleted[conversation_id] = now
        for share in [share for share in state.shares.values() if share.conversation_id == conversation_id]:
            del state.shares[share.id]
        running = [
            generation
            for generation in state.generations.values()
            if generation.conversation_id == conversation_id and not generation.status.terminal
        ]
        running.sort(key=lambda generation: (generation.created_at, generation.id))
        for generation in running:
            state.generations[generation.id] = replace(generation, cancel_requested=True)
            state.cancel_requests[generation.id] = now
        return tuple(generation.id for generation in running)

    async def path(
        self, owner: Owner, conversation_id: ConversationId, *, leaf: MessageId | None, limit: int, before: MessageId | None
    ) -> PathPage:
        head = find_conversation(self._state, owner, conversation_id)
        window = tree_of(self._state, conversation_id).window(head, leaf=leaf, limit=limit, before=before)
        messages = tuple(self._state.messages[message_id] for message_id in window.message_ids)
        given = {message.id: self._state.feedback.get((owner.user_id, message.id)) for message in messages}
        ratings = {message_id: stored.feedback.rating for message_id, stored in given.items() if stored is not None}
        return PathPage(messages, window.siblings, window.next_cursor, ratings)

    async def branch(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId, *, last: int) -> tuple[Message, ...]:
        find_conversation(self._state, owner, conversation_id)
        return tuple(self._state.messages[message_id] for message_id in self._up(conversation_id, leaf, last))

    async def branch_ids(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[MessageId, ...]:
        find_conversation(self._state, owner, conversation_id)
        return self._up(conversation_id, leaf, len(self._state.messages))

    async def texts(self, owner: Owner, conversation_id: ConversationId, message_ids: Sequence[MessageId]) -> tuple[Message, ...]:
        find_conversation(self._state, owner, conversation_id)
        return tuple(find_message(self._state, conversation_id, message_id) for message_id in message_ids)

    def _up(self, conversation_id: ConversationId, leaf: MessageId, last: int) -> tuple[MessageId, ...]:
        ids: list[MessageId] = []
        step: MessageId | None = leaf
        while step is not None and len(ids) < last:
            message = find_message(self._state, conversation_id, step)
            ids.append(message.id)
            step = message.parent_id
        return tuple(reversed(ids))

    async def tree(self, owner: Owner, conversation_id: ConversationId) -> tuple[TreeNode, ...]:
        find_conversation(self._state, owner, conversation_id)
        return tree_of(self._state, conversation_id).nodes

    async def message(self, owner: Owner, message_id: MessageId) -> Message:
        message = self._state.messages.get(message_id)
        if message is None:
            raise NotFound
        find_conversation(self._state, owner, message.conversation_id)
        return message

    async def put_feedback(self, owner: Owner, message_id: MessageId, feedback: Feedback, *, now: datetime) -> None:
        message = await self.message(owner, message_id)
        if message.role is not Role.ASSISTANT:
            raise InvalidRequest([FieldFault("message_id", "Only answers take feedback.")])
        place = (owner.user_id, message_id)
        if feedback.rating == 0:
            self._state.feedback.pop(place, None)
        else:
            self._state.feedback[place] = StoredFeedback(feedback, now)


def _is_owned(state: MemoryState, owner: Owner, head: Conversation) -> bool:
    return (head.tenant_id, head.user_id) == (owner.tenant_id, owner.user_id) and head.id not in state.deleted


def _is_listed(state: MemoryState, owner: Owner, head: Conversation) -> bool:
    return _is_owned(state, owner, head) and not head.temporary


def find_conversation(state: MemoryState, owner: Owner, conversation_id: ConversationId) -> Conversation:
    """The owner's living conversation; raises ``NotFound``."""
    head = state.conversations.get(conversation_id)
    if head is None or conversation_id in state.deleted or (head.tenant_id, head.user_id) != (owner.tenant_id, owner.user_id):
        raise NotFound
    return head


def find_message(state: MemoryState, conversation_id: ConversationId, message_id: MessageId) -> Message:
    """A message of that conversation; raises ``NotFound``."""
    message = state.messages.get(message_id)
    if message is None or message.conversation_id != conversation_id:
        raise NotFound
    return message


def tree_of(state: MemoryState, conversation_id: ConversationId) -> ConversationTree:
    messages = (state.messages[message_id] for message_id in state.message_ids.get(conversation_id, ()))
    return ConversationTree(
        TreeNode(message.id, message.parent_id, message.role, message.status, message.created_at) for message in messages
    )
