"""Temporary conversations live in memory alone: no row, no index entry and no log record of theirs reaches a file.

Each class stands before a durable driver and a memory driver of one port, and sends a call to the memory driver where ``state``,
that driver's rows, knows the id. What a temporary turn costs is written durably, also while it is written: a server that ends forgets
temporary conversations, and not what their answers had cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from antiphon.core.events import LogEntry
from antiphon.core.generation import Generation, Usage
from antiphon.core.ids import ConversationId, GenerationId, MessageId, TenantId
from antiphon.core.messages import Conversation, Message, TreeNode
from antiphon.core.prompts import Preamble, Summary
from antiphon.core.usage import UsageRecord, usage_of
from antiphon.stores.conversations.base import (
    EVERYTHING,
    ConversationFilter,
    ConversationPage,
    ConversationPatch,
    Conversations,
    Feedback,
    Folder,
    Owner,
    PathPage,
    SearchPage,
)
from antiphon.stores.generations.base import Accepted, FinishedGeneration, Generations, IdempotencyKey, TurnToAccept
from antiphon.stores.log.base import GenerationLog, LogSlice, LogState
from antiphon.stores.memory import MemoryState
from antiphon.stores.prompts.base import Prompts

KEPT = timedelta(hours=1)


class TemporaryConversations:
    def __init__(self, durable: Conversations, fleeting: Conversations, state: MemoryState) -> None:
        self._durable = durable
        self._fleeting = fleeting
        self._state = state

    def _of(self, conversation_id: ConversationId) -> Conversations:
        return self._fleeting if conversation_id in self._state.conversations else self._durable

    def _of_message(self, message_id: MessageId) -> Conversations:
        return self._fleeting if message_id in self._state.messages else self._durable

    async def create(self, conversation: Conversation) -> None:
        await (self._fleeting if conversation.temporary else self._durable).create(conversation)

    async def get(self, owner: Owner, conversation_id: ConversationId) -> Conversation:
        return await self._of(conversation_id).get(owner, conversation_id)

    async def page(self, owner: Owner, *, limit: int, after: str | None, only: ConversationFilter = EVERYTHING) -> ConversationPage:
        return await self._durable.page(owner, limit=limit, after=after, only=only)

    async def folders(self, owner: Owner) -> tuple[Folder, ...]:
        return await self._durable.folders(owner)

    async def search(self, owner: Owner, question: str, *, limit: int, after: str | None) -> SearchPage:
        return await self._durable.search(owner, question, limit=limit, after=after)

    async def update(self, owner: Owner, conversation_id: ConversationId, patch: ConversationPatch, *, now: datetime) -> Conversation:
        return await self._of(conversation_id).update(owner, conversation_id, patch, now=now)

    async def suggest_title(self, owner: Owner, conversation_id: ConversationId, title: str) -> Conversation:
        return await self._of(conversation_id).suggest_title(owner, conversation_id, title)

    async def delete(self, owner: Owner, conversation_id: ConversationId, *, now: datetime) -> tuple[GenerationId, ...]:
        return await self._of(conversation_id).delete(owner, conversation_id, now=now)

    async def delete_all(self, owner: Owner, *, now: datetime) -> tuple[GenerationId, ...]:
        return (*await self._durable.delete_all(owner, now=now), *await self._fleeting.delete_all(owner, now=now))

    async def path(
        self, owner: Owner, conversation_id: ConversationId, *, leaf: MessageId | None, limit: int, before: MessageId | None
    ) -> PathPage:
        return await self._of(conversation_id).path(owner, conversation_id, leaf=leaf, limit=limit, before=before)

    async def branch(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId, *, last: int) -> tuple[Message, ...]:
        return await self._of(conversation_id).branch(owner, conversation_id, leaf, last=last)

    async def branch_ids(self, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[MessageId, ...]:
        return await self._of(conversation_id).branch_ids(owner, conversation_id, leaf)

    async def texts(self, owner: Owner, conversation_id: ConversationId, message_ids: Sequence[MessageId]) -> tuple[Message, ...]:
        return await self._of(conversation_id).texts(owner, conversation_id, message_ids)

    async def tree(self, owner: Owner, conversation_id: ConversationId) -> tuple[TreeNode, ...]:
        return await self._of(conversation_id).tree(owner, conversation_id)

    async def message(self, owner: Owner, message_id: MessageId) -> Message:
        return await self._of_message(message_id).message(owner, message_id)

    async def put_feedback(self, owner: Owner, message_id: MessageId, feedback: Feedback, *, now: datetime) -> None:
        await self._of_message(message_id).put_feedback(owner, message_id, feedback, now=now)

    async def end_unused(self, *, now: datetime) -> None:
        """Delete temporary conversations that nobody has used for an hour."""
        for head in list(self._state.conversations.values()):
            if head.id not in self._state.deleted and head.updated_at < now - KEPT:
                await self._fleeting.delete(Owner(head.tenant_id, head.user_id), head.id, now=now)


class TemporaryGenerations:
    def __init__(self, durable: Generations, fleeting: Generations, state: MemoryState) -> None:
        self._durable = durable
        self._fleeting = fleeting
        self._state = state

    def _of(self, generation_id: GenerationId) -> Generations:
        return self._fleeting if generation_id in self._state.generations else self._durable

    async def find_replay(self, idempotency: IdempotencyKey, *, now: datetime) -> Accepted | None:
        return await self._fleeting.find_replay(idempotency, now=now) or await self._durable.find_replay(idempotency, now=now)

    async def accept(self, turn: TurnToAccept) -> Accepted:
        fleeting = turn.conversation_id in self._state.conversations
        return await (self._fleeting if fleeting else self._durable).accept(turn)

    async def now(self) -> datetime:
        return await self._durable.now()

    async def get(self, owner: Owner, generation_id: GenerationId) -> Generation:
        return await self._of(generation_id).get(owner, generation_id)

    async def claim(self, generation_id: GenerationId, *, now: datetime, lease_until: datetime) -> Generation | None:
        return await self._of(generation_id).claim(generation_id, now=now, lease_until=lease_until)

    async def heartbeat(self, generation_id: GenerationId, epoch: int, *, lease_until: datetime) -> bool:
        cancelled = await self._of(generation_id).heartbeat(generation_id, epoch, lease_until=lease_until)
        await self._keep(generation_id)
        return cancelled

    async def checkpoint(self, generation_id: GenerationId, epoch: int, *, text: str, seq: int, usage: Usage) -> None:
        await self._of(generation_id).checkpoint(generation_id, epoch, text=text, seq=seq, usage=usage)
        await self._keep(generation_id)

    async def _keep(self, generation_id: GenerationId) -> None:
        """Note durably what a temporary turn has cost so far, if it has cost anything yet."""
        generation = self._state.generations.get(generation_id)
        if generation is not None and generation.usage.output_tokens and not generation.status.terminal:
            now = await self._durable.now()
            so_far = usage_of(generation, generation.usage, finish_reason=None, estimated=True, finished_at=now)
            await self._durable.keep_usage((so_far,), now=now)

    async def finalise(self, finished: FinishedGeneration) -> None:
        generation = self._state.generations.get(finished.generation_id)
        if generation is not None and generation.epoch == finished.epoch and not generation.status.terminal:
            await self._durable.add_usage(generation.tenant_id, generation.id, finished.outbox_payload, now=finished.now)
        await self._of(finished.generation_id).finalise(finished)

    async def add_usage(self, tenant_id: TenantId, generation_id: GenerationId, payload: str, *, now: datetime) -> None:
        await self._durable.add_usage(tenant_id, generation_id, payload, now=now)

    async def keep_usage(self, records: Sequence[UsageRecord], *, now: datetime) -> None:
        await self._durable.keep_usage(records, now=now)

    async def left_usage(self, *, before: datetime, limit: int) -> tuple[UsageRecord, ...]:
        return await self._durable.left_usage(before=before, limit=limit)

    async def request_cancel(self, owner: Owner, generation_id: GenerationId, *, now: datetime) -> Generation:
        return await self._of(generation_id).request_cancel(owner, generation_id, now=now)

    async def due(self, *, now: datetime, limit: int) -> tuple[GenerationId, ...]:
        fleeting = await self._fleeting.due(now=now, limit=limit)
        return (*fleeting, *await self._durable.due(now=now, limit=limit))[:limit]

    async def opened(self, *, limit: int) -> tuple[Generation, ...]:
        return (*await self._fleeting.opened(limit=limit), *await self._durable.opened(limit=limit))[:limit]

    async def count_open(self) -> int:
        return await self._fleeting.count_open() + await self._durable.count_open()


class TemporaryPrompts:
    def __init__(self, durable: Prompts, fleeting: Prompts, state: MemoryState) -> None:
        self._durable = durable
        self._fleeting = fleeting
        self._state = state

    def _of(self, conversation_id: ConversationId) -> Prompts:
        return self._fleeting if conversation_id in self._state.conversations else self._durable

    async def summaries(self, owner: Owner, conversation_id: ConversationId) -> tuple[Summary, ...]:
        return await self._of(conversation_id).summaries(owner, conversation_id)

    async def add_summary(self, owner: Owner, summary: Summary) -> None:
        await self._of(summary.conversation_id).add_summary(owner, summary)

    async def preamble(self, owner: Owner, conversation_id: ConversationId, digest: str) -> Preamble | None:
        return await self._of(conversation_id).preamble(owner, conversation_id, digest)

    async def counts(self, owner: Owner, conversation_id: ConversationId, model: str) -> Mapping[MessageId, int]:
        return await self._of(conversation_id).counts(owner, conversation_id, model)

    async def add_counts(self, owner: Owner, conversation_id: ConversationId, model: str, counts: Mapping[MessageId, int]) -> None:
        await self._of(conversation_id).add_counts(owner, conversation_id, model, counts)


class TemporaryLog:
    def __init__(self, durable: GenerationLog, fleeting: GenerationLog, state: MemoryState) -> None:
        self._durable = durable
        self._fleeting = fleeting
        self._state = state

    def _of(self, generation_id: GenerationId) -> GenerationLog:
        return self._fleeting if generation_id in self._state.generations else self._durable

    async def open(self, generation_id: GenerationId, epoch: int) -> LogState:
        return await self._of(generation_id).open(generation_id, epoch)

    async def append(self, generation_id: GenerationId, entries: Sequence[LogEntry]) -> None:
        await self._of(generation_id).append(generation_id, entries)

    async def read(self, generation_id: GenerationId, after_seq: int, *, limit: int = 256) -> LogSlice | None:
        return await self._of(generation_id).read(generation_id, after_seq, limit=limit)

    async def wait(self, generation_id: GenerationId, after_seq: int) -> None:
        await self._of(generation_id).wait(generation_id, after_seq)

    async def state(self, generation_id: GenerationId) -> LogState | None:
        return await self._of(generation_id).state(generation_id)

    async def expire(self, *, now: datetime) -> int:
        return await self._durable.expire(now=now) + await self._fleeting.expire(now=now)

    async def discard(self, generation_id: GenerationId) -> None:
        await self._durable.discard(generation_id)
        await self._fleeting.discard(generation_id)

    async def close(self) -> None:
        await self._durable.close()
        await self._fleeting.close()
