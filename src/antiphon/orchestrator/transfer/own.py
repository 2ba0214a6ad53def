"""Our own format: JSON lines, a header and then one conversation per line, whole.

Nothing is lost on the way: members that a reader does not know are kept beside the conversation and written again. Ids are those of
the server that wrote the file; a reader gives new ones, and remembers the conversation's first as its origin.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from antiphon.core.clock import rfc3339
from antiphon.core.messages import Message, MessageError, MessageStatus, Role, TitleSource
from antiphon.orchestrator.transfer.source import Counts, SourceConversation, SourceMessage, Unreadable
from antiphon.orchestrator.transfer.values import (
    Json,
    JsonObject,
    count_of,
    dump,
    id_of,
    list_of,
    name_of,
    object_of,
    parse_object,
    rest_of,
    text_of,
    time_of,
)
from antiphon.stores.conversations.base import Feedback
from antiphon.stores.transfers.base import OUR_SOURCE, WholeConversation

HEADER = '{"antiphon_export":1}\n'

_HEAD = frozenset(
    {
        "id", "title", "title_source", "model", "folder", "pinned", "archived", "temporary", "version", "created_at", "updated_at",
        "current_leaf_id", "origin", "messages",
    }
)  # fmt: skip
_MESSAGE = frozenset(
    {
        "id", "conversation_id", "parent_id", "role", "content", "status", "model", "requested_model", "finish_reason", "prompt_tokens",
        "cached_tokens", "output_tokens", "cost", "created_at", "error", "feedback",
    }
)  # fmt: skip
_MAX_REASONS, _MAX_REASON, _MAX_COMMENT = 16, 64, 4000


def is_header(value: JsonObject) -> bool:
    return "antiphon_export" in value and "messages" not in value


def recognises(value: JsonObject) -> bool:
    """Whether this is a conversation of ours, as an export or as our API tells it."""
    return isinstance(value.get("messages"), list) and (text_of(value.get("id")) or "").startswith("conv_")


def line_of(whole: WholeConversation) -> str:
    """One line of an export."""
    return dump(object_of_whole(whole)) + "\n"


def object_of_whole(whole: WholeConversation) -> JsonObject:
    head = whole.head
    told: JsonObject = {
        "id": head.id,
        "title": head.title,
        "title_source": head.title_source.value,
        "model": head.model,
        "folder": head.folder,
        "pinned": head.pinned,
        "archived": head.archived,
        "created_at": rfc3339(head.created_at),
        "updated_at": rfc3339(head.updated_at),
        "current_leaf_id": head.current_leaf_id,
    }
    if whole.origin is not None:
        told["origin"] = {"source": whole.origin.source, "id": whole.origin.source_id}
    told |= _unknown(whole.extra)
    told["messages"] = [_object_of_message(whole, message) for message in whole.messages]
    return told


def _object_of_message(whole: WholeConversation, message: Message) -> JsonObject:
    told: JsonObject = {
        "id": message.id,
        "parent_id": message.parent_id,
        "role": message.role.value,
        "content": message.content,
        "status": message.status.value,
        "model": message.model,
        "requested_model": message.requested_model,
        "finish_reason": message.finish_reason,
        "prompt_tokens": message.prompt_tokens,
        "cached_tokens": message.cached_tokens,
        "output_tokens": message.output_tokens,
        "cost": None if message.cost is None else str(message.cost),
        "created_at": rfc3339(message.created_at),
        "error": None if message.error is None else _object_of_error(message.error),
    }
    if message.generation_id is not None:
        told["generation_id"] = message.generation_id
    given = whole.feedback.get(message.id)
    if given is not None:
        told["feedback"] = {"rating": given.rating, "reasons": list[Json](given.reasons), "comment": given.comment}
    return told | _unknown(whole.extras.get(message.id, ""))


def _object_of_error(error: MessageError) -> JsonObject:
    return {"code": error.code, "message": error.message, "retryable": error.retryable}


def _unknown(extra: str) -> JsonObject:
    return parse_object(extra.encode())[0] if extra else {}


def read(value: JsonObject) -> SourceConversation:
    """A line of an export, or a conversation as the API tells it with its messages beside it."""
    source_id = id_of(value.get("id")) or ""
    origin = object_of(value.get("origin"))
    source, first_id = name_of(origin.get("source")), id_of(origin.get("id"))
    if source is None or first_id is None:
        source, first_id = OUR_SOURCE, source_id
    return SourceConversation(
        source=source,
        source_id=first_id,
        title=text_of(value.get("title")) or "",
        messages=tuple(_message(object_of(message), source_id) for message in list_of(value.get("messages"))),
        current_id=id_of(value.get("current_leaf_id")),
        created_at=time_of(value.get("created_at")),
        updated_at=time_of(value.get("updated_at")),
        model=name_of(value.get("model")),
        pinned=value.get("pinned") is True,
        archived=value.get("archived") is True,
        folder=name_of(value.get("folder")),
        title_source=TitleSource.AUTO if value.get("title_source") == TitleSource.AUTO.value else TitleSource.USER,
        may_be_empty=True,
        extra=rest_of(value, _HEAD),
    )


def _message(value: JsonObject, conversation: str) -> SourceMessage:
    message_id, role, content = id_of(value.get("id")), text_of(value.get("role")), text_of(value.get("content"))
    if message_id is None or content is None or role not in set(Role):
        raise Unreadable("A message has no id, no content, or a role that we do not know.", conversation)
    return SourceMessage(
        source_id=message_id,
        parent_id=id_of(value.get("parent_id")),
        role=Role(role),
        content=content,
        created_at=time_of(value.get("created_at")),
        status=_status(text_of(value.get("status"))),
        model=name_of(value.get("model")),
        requested_model=name_of(value.get("requested_model")),
        finish_reason=name_of(value.get("finish_reason")),
        error=_error(object_of(value.get("error"))),
        counts=Counts(
            prompt_tokens=count_of(value.get("prompt_tokens")),
            cached_tokens=count_of(value.get("cached_tokens")),
            output_tokens=count_of(value.get("output_tokens")),
            cost=_cost(text_of(value.get("cost"))),
        ),
        feedback=_feedback(object_of(value.get("feedback"))),
        extra=rest_of(value, _MESSAGE),
    )


def _status(text: str | None) -> MessageStatus:
    """What was still being written there is not being written here."""
    if text is None or text not in set(MessageStatus):
        return MessageStatus.COMPLETE
    return MessageStatus.INTERRUPTED if text == MessageStatus.STREAMING.value else MessageStatus(text)


def _error(value: JsonObject) -> MessageError | None:
    code = name_of(value.get("code"))
    return None if code is None else MessageError(code, (text_of(value.get("message")) or "")[:2000], value.get("retryable") is True)


def _cost(text: str | None) -> Decimal | None:
    try:
        cost = None if text is None else Decimal(text[:64])
    except InvalidOperation:
        return None
    return cost if cost is not None and cost.is_finite() and cost >= 0 else None


def _feedback(value: JsonObject) -> Feedback | None:
    rating = value.get("rating")
    if rating not in {1, -1} or isinstance(rating, bool):
        return None
    reasons = tuple(reason[:_MAX_REASON] for reason in list_of(value.get("reasons")) if isinstance(reason, str) and reason)
    return Feedback(1 if rating == 1 else -1, reasons[:_MAX_REASONS], (text_of(value.get("comment")) or "")[:_MAX_COMMENT])
