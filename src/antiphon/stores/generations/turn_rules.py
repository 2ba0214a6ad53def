"""What a turn may attach to and which rows it makes, as pure functions that every driver shares."""

from __future__ import annotations

from dataclasses import replace

from antiphon.core.errors import FieldFault, InvalidRequest, ParentStreaming
from antiphon.core.generation import FinishReason, Generation, GenerationStatus
from antiphon.core.ids import MessageId
from antiphon.core.messages import Message, MessageStatus, Role
from antiphon.stores.generations.base import Accepted, FinishedGeneration, NewUserMessage, TurnToAccept

_MESSAGE_STATUS = {
    GenerationStatus.COMPLETE: MessageStatus.COMPLETE,
    GenerationStatus.CANCELLED: MessageStatus.CANCELLED,
    GenerationStatus.FAILED: MessageStatus.FAILED,
    GenerationStatus.INTERRUPTED: MessageStatus.INTERRUPTED,
}


def check_text_under(parent: Message) -> None:
    """Text goes under a finished assistant message; raises ``InvalidRequest`` or ``ParentStreaming``."""
    if parent.role is not Role.ASSISTANT:
        raise InvalidRequest([FieldFault("parent_message_id", "A message with content must follow an assistant message.")])
    if parent.status is MessageStatus.STREAMING:
        raise ParentStreaming


def check_regenerate_under(parent: Message) -> None:
    """Another answer goes under a user message; raises ``InvalidRequest``."""
    if parent.role is not Role.USER:
        raise InvalidRequest([FieldFault("content", "Content may be null only under a user message.")])


def can_continue(message: Message) -> bool:
    """Whether an assistant message stopped before its end, so that *Continue* makes sense."""
    if message.role is not Role.ASSISTANT or message.status is MessageStatus.STREAMING:
        return False
    return message.status is not MessageStatus.COMPLETE or message.finish_reason == FinishReason.LENGTH


def check_continue(message: Message) -> None:
    """Raises ``ParentStreaming`` while it is still being written, ``InvalidRequest`` when there is nothing to continue."""
    if message.role is Role.ASSISTANT and message.status is MessageStatus.STREAMING:
        raise ParentStreaming
    if not can_continue(message):
        raise InvalidRequest([FieldFault("message_id", "Only an answer that was cut short can be continued.")])


def user_message(turn: TurnToAccept, text: NewUserMessage, parent_id: MessageId | None) -> Message:
    return Message(
        id=text.message_id,
        conversation_id=turn.conversation_id,
        parent_id=parent_id,
        role=Role.USER,
        content=text.content,
        status=MessageStatus.COMPLETE,
        created_at=turn.now,
        content_tokens=text.content_tokens,
        counted_by=None if text.content_tokens is None else turn.model,
    )


def placeholder(turn: TurnToAccept, user_message_id: MessageId) -> Message:
    """The assistant message that the turn's generation will fill."""
    return Message(
        id=turn.message_id,
        conversation_id=turn.conversation_id,
        parent_id=user_message_id,
        role=Role.ASSISTANT,
        content="",
        status=MessageStatus.STREAMING,
        created_at=turn.now,
        model=turn.model,
        requested_model=turn.requested_model,
        generation_id=turn.generation_id,
        prompt=turn.prompt,
    )


def reopened(message: Message, turn: TurnToAccept) -> Message:
    """``message`` being written again by the turn's generation; its text stays."""
    return replace(
        message,
        status=MessageStatus.STREAMING,
        model=turn.model,
        requested_model=turn.requested_model,
        generation_id=turn.generation_id,
        finish_reason=None,
        error=None,
        prompt=turn.prompt or message.prompt,
    )


def queued_generation(turn: TurnToAccept, message: Message) -> Generation:
    """The generation that fills ``message``, a placeholder or a reopened message."""
    return Generation(
        id=turn.generation_id,
        tenant_id=turn.owner.tenant_id,
        user_id=turn.owner.user_id,
        conversation_id=turn.conversation_id,
        message_id=message.id,
        user_message_id=message.parent_id,
        status=GenerationStatus.QUEUED,
        epoch=0,
        model=turn.model,
        requested_model=turn.requested_model,
        params=turn.params,
        created_at=turn.now,
        key_id=turn.key_id,
        plan=turn.plan,
        band=turn.band,
        pool=turn.pool,
        route_rule=turn.route_rule,
        route_reason=turn.route_reason,
        prior_text=message.content,
    )


def accepted(generation: Generation) -> Accepted:
    return Accepted(
        conversation_id=generation.conversation_id,
        user_message_id=generation.user_message_id,
        message_id=generation.message_id,
        generation_id=generation.id,
    )


def finished_message(message: Message, finished: FinishedGeneration) -> Message:
    """``message`` at its end. ``finished.text`` is its whole text, text from before a *Continue* included."""
    return replace(
        message,
        content=finished.text,
        status=_MESSAGE_STATUS[finished.status],
        finish_reason=finished.finish_reason,
        prompt_tokens=finished.usage.prompt_tokens,
        cached_tokens=finished.usage.cached_tokens,
        output_tokens=finished.usage.output_tokens,
        content_tokens=finished.content_tokens,
        counted_by=None if finished.content_tokens is None else message.model,
        reasoning=finished.reasoning or message.reasoning,
        prompt=finished.prompt or message.prompt,
        cost=finished.usage.cost,
        error=finished.error,
    )


def finished_generation(generation: Generation, finished: FinishedGeneration) -> Generation:
    """``generation`` at its end; the checkpoint is dropped, since the message holds the text."""
    return replace(
        generation,
        status=finished.status,
        checkpoint_text="",
        lease_until=None,
        finish_reason=finished.finish_reason,
        usage=finished.usage,
        ttft_ms=finished.ttft_ms,
        duration_ms=finished.duration_ms,
        error=finished.error,
        finished_at=finished.now,
    )


def check_finished(finished: FinishedGeneration) -> None:
    """Raises ``ValueError`` for an end that is none."""
    if not finished.status.terminal:
        raise ValueError(f"a generation does not end as {finished.status}")
