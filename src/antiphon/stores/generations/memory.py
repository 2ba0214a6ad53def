"""Generations in memory: the reference driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from antiphon.core.clock import Clock
from antiphon.core.errors import Conflict, IdempotencyMismatch, NotFound, StaleEpoch, StoreUnavailable
from antiphon.core.generation import Generation, GenerationStatus, Usage
from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.messages import Message
from antiphon.core.usage import UsageRecord
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.head import after_accept
from antiphon.stores.conversations.memory import find_conversation, find_message, tree_of
from antiphon.stores.generations import turn_rules
from antiphon.stores.generations.base import (
    Accepted,
    ContinueMessage,
    CurrentLeaf,
    FinishedGeneration,
    IdempotencyKey,
    NewUserMessage,
    RegenerateUnder,
    TurnToAccept,
)
from antiphon.stores.memory import MemoryState, OutboxRow, StoredReplay


class MemoryGenerations:
    """``clock`` is the store's own; a runner needs it."""

    def __init__(self, state: MemoryState, clock: Clock | None = None) -> None:
        self._state = state
        self._clock = clock

    async def now(self) -> datetime:
        if self._clock is None:
            raise StoreUnavailable("This store was given no clock.")
        return self._clock.now()

    async def find_replay(self, idempotency: IdempotencyKey, *, now: datetime) -> Accepted | None:
        return self._replay(idempotency, now)

    async def accept(self, turn: TurnToAccept) -> Accepted:
        state = self._state
        if turn.idempotency is not None:
            replay = self._replay(turn.idempotency, turn.now)
            if replay is not None:
                return replay
        head = find_conversation(state, turn.owner, turn.conversation_id)
        added, answer = self._messages(turn)
        generation = turn_rules.queued_generation(turn, answer)
        if generation.id in state.generations or any(message.id in state.messages for message in added):
            raise Conflict
        for message in added:
            state.add_message(message)
        state.messages[answer.id] = answer
        state.generations[generation.id] = generation
        text = turn.what.content if isinstance(turn.what, NewUserMessage) else None
        changed = state.conversations[head.id] = after_accept(head, answer.id, text, now=turn.now)
        if changed.title != head.title:
            state.index(head.id, None)
        if isinstance(turn.what, NewUserMessage):
            state.index(head.id, turn.what.message_id)
        if turn.preamble is not None:
            state.preambles.setdefault((head.id, turn.preamble.digest), turn.preamble)
        if turn.summary is not None:
            state.add_summary(turn.summary)
        accepted = turn_rules.accepted(generation)
        if turn.idempotency is not None:
            key = turn.idempotency
            state.replays[key.scope, key.key] = StoredReplay(key.fingerprint, key.expires_at, accepted)
        return accepted

    async def get(self, owner: Owner, generation_id: GenerationId) -> Generation:
        generation = self._state.generations.get(generation_id)
        if generation is None:
            raise NotFound
        find_conversation(self._state, owner, generation.conversation_id)
        return generation

    async def claim(self, generation_id: GenerationId, *, now: datetime, lease_until: datetime) -> Generation | None:
        generation = self._state.generations.get(generation_id)
        if generation is None or not _is_due(generation, now):
            return None
        claimed = replace(generation, status=GenerationStatus.RUNNING, epoch=generation.epoch + 1, lease_until=lease_until)
        self._state.generations[generation_id] = claimed
        return claimed

    async def heartbeat(self, generation_id: GenerationId, epoch: int, *, lease_until: datetime) -> bool:
        generation = self._held(generation_id, epoch)
        self._state.generations[generation_id] = replace(generation, lease_until=lease_until)
        return generation.cancel_requested

    async def checkpoint(self, generation_id: GenerationId, epoch: int, *, text: str, seq: int, usage: Usage) -> None:
        generation = self._held(generation_id, epoch)
        self._state.generations[generation_id] = replace(generation, checkpoint_text=text, checkpoint_seq=seq, usage=usage)

    async def finalise(self, finished: FinishedGeneration) -> None:
        turn_rules.check_finished(finished)
        state = self._state
        generation = state.generations.get(finished.generation_id)
        if generation is None or generation.epoch != finished.epoch or generation.status.terminal:
            raise StaleEpoch
        message = state.messages[generation.message_id]
        head = state.conversations[generation.conversation_id]
        state.generations[generation.id] = turn_rules.finished_generation(generation, finished)
        state.messages[message.id] = turn_rules.finished_message(message, finished)
        state.conversations[head.id] = replace(head, updated_at=max(head.updated_at, finished.now))
        if message.content != finished.text:
            state.index(head.id, message.id)
        state.outbox.append(OutboxRow(generation.tenant_id, "usage", generation.id, finished.outbox_payload, finished.now))

    async def add_usage(self, tenant_id: TenantId, generation_id: GenerationId, payload: str, *, now: datetime) -> None:
        if all((row.tenant_id, row.dedup_key) != (tenant_id, generation_id) for row in self._state.outbox):
            self._state.outbox.append(OutboxRow(tenant_id, "usage", generation_id, payload, now))
        self._state.open_usage.pop((tenant_id, generation_id), None)

    async def keep_usage(self, records: Sequence[UsageRecord], *, now: datetime) -> None:
        for record in records:
            self._state.open_usage[record.tenant_id, record.generation_id] = now, record

    async def left_usage(self, *, before: datetime, limit: int) -> tuple[UsageRecord, ...]:
        left = sorted(
            (item for item in self._state.open_usage.values() if item[0] < before), key=lambda item: (item[0], item[1].generation_id)
        )
        return tuple(record for _, record in left[:limit])

    async def request_cancel(self, owner: Owner, generation_id: GenerationId, *, now: datetime) -> Generation:
        generation = await self.get(owner, generation_id)
        if not generation.status.terminal and not generation.cancel_requested:
            generation = replace(generation, cancel_requested=True)
            self._state.cancel_requests[generation_id] = now
            self._state.generations[generation_id] = generation
        return generation

    async def due(self, *, now: datetime, limit: int) -> tuple[GenerationId, ...]:
        due = [generation for generation in self._state.generations.values() if _is_due(generation, now)]
        due.sort(key=lambda generation: (generation.created_at, generation.id))
        return tuple(generation.id for generation in due[:limit])

    async def opened(self, *, limit: int) -> tuple[Generation, ...]:
        found = [generation for generation in self._state.generations.values() if not generation.status.terminal]
        return tuple(sorted(found, key=lambda generation: (generation.created_at, generation.id))[:limit])

    async def count_open(self) -> int:
        return sum(not generation.status.terminal for generation in self._state.generations.values())

    def _replay(self, idempotency: IdempotencyKey, now: datetime) -> Accepted | None:
        stored = self._state.replays.get((idempotency.scope, idempotency.key))
        if stored is None or stored.expires_at <= now:
            return None
        if stored.fingerprint != idempotency.fingerprint:
            raise IdempotencyMismatch
        return replace(stored.accepted, replayed=True)

    def _messages(self, turn: TurnToAccept) -> tuple[tuple[Message, ...], Message]:
        """The turn's new messages, and the one its generation will fill."""
        state, conversation_id = self._state, turn.conversation_id
        match turn.what:
            case NewUserMessage(parent=parent) as text:
                if isinstance(parent, CurrentLeaf):
                    parent = tree_of(state, conversation_id).shown_leaf(state.conversations[conversation_id].current_leaf_id)
                if parent is not None:
                    turn_rules.check_text_under(find_message(state, conversation_id, parent))
                user_message = turn_rules.user_message(turn, text, parent)
                answer = turn_rules.placeholder(turn, user_message.id)
                return (user_message, answer), answer
            case RegenerateUnder(user_message_id=parent):
                turn_rules.check_regenerate_under(find_message(state, conversation_id, parent))
                answer = turn_rules.placeholder(turn, parent)
                return (answer,), answer
            case ContinueMessage(message_id=message_id):
                message = find_message(state, conversation_id, message_id)
                turn_rules.check_continue(message)
                return (), turn_rules.reopened(message, turn)

    def _held(self, generation_id: GenerationId, epoch: int) -> Generation:
        generation = self._state.generations.get(generation_id)
        if generation is None or generation.epoch != epoch or generation.status is not GenerationStatus.RUNNING:
            raise StaleEpoch
        return generation


def _is_due(generation: Generation, now: datetime) -> bool:
    if generation.status is GenerationStatus.QUEUED:
        return True
    return generation.status is GenerationStatus.RUNNING and (generation.lease_until is None or generation.lease_until <= now)
