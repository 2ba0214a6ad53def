"""LibreChat's export of one conversation: ``messages`` (or ``messagesTree``), flat with ``parentMessageId`` or nested in ``children``."""

from __future__ import annotations

from dataclasses import replace

from antiphon.core.messages import MessageError, MessageStatus, Role, TitleSource
from antiphon.orchestrator.transfer.source import Counts, SourceConversation, SourceMessage, Unreadable
from antiphon.orchestrator.transfer.values import Json, JsonObject, count_of, id_of, list_of, name_of, object_of, text_of, time_of

SOURCE = "librechat"

_NO_PARENT = "00000000-0000-0000-0000-000000000000"
_FINISHED = {
    "stop": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "incomplete": "length",
    "content_filter": "content_filter",
}


def recognises(value: JsonObject) -> bool:
    return "conversationId" in value and ("messages" in value or "messagesTree" in value)


def read(value: JsonObject) -> SourceConversation:
    """Raises ``Unreadable`` where there is no list of messages. The newest message is the current one: the export does not say."""
    source_id = id_of(value.get("conversationId")) or ""
    roots = value.get("messagesTree") if isinstance(value.get("messagesTree"), list) else value.get("messages")
    if not isinstance(roots, list):
        raise Unreadable("It has no messages.", source_id)
    messages = _flattened(roots)
    if value.get("branches") is False and value.get("recursive") is not True:
        messages = _linked(messages)
    times = [message.created_at for message in messages if message.created_at is not None]
    return SourceConversation(
        source=SOURCE,
        source_id=source_id,
        title=text_of(value.get("title")) or "",
        messages=messages,
        created_at=time_of(value.get("createdAt")) or (min(times) if times else None),
        updated_at=time_of(value.get("updatedAt")) or (max(times) if times else None),
        archived=value.get("isArchived") is True,
        title_source=TitleSource.USER,
    )


def _flattened(roots: list[Json]) -> tuple[SourceMessage, ...]:
    """Nested or flat, in the order of the file. Where a message has children in it, they are its children, whatever they say."""
    messages: list[SourceMessage] = []
    waiting: list[tuple[Json, str | None]] = [(value, None) for value in reversed(roots)]
    while waiting:
        value, parent = waiting.pop()
        node = object_of(value)
        message_id = id_of(node.get("messageId")) or id_of(node.get("_id")) or f"#{len(messages)}"
        messages.append(_message(message_id, parent or _parent(node), node))
        waiting.extend((child, message_id) for child in reversed(list_of(node.get("children"))))
    return tuple(messages)


def _parent(node: JsonObject) -> str | None:
    parent = id_of(node.get("parentMessageId"))
    return None if parent == _NO_PARENT else parent


def _linked(messages: tuple[SourceMessage, ...]) -> tuple[SourceMessage, ...]:
    """An export of one path, whose links may lead to messages that are not in it."""
    known = {message.source_id for message in messages}
    if all(message.parent_id is None or message.parent_id in known for message in messages):
        return messages
    return tuple(
        message if message.parent_id in known or number == 0 else replace(message, parent_id=messages[number - 1].source_id)
        for number, message in enumerate(messages)
    )


def _message(message_id: str, parent: str | None, node: JsonObject) -> SourceMessage:
    role = _role(node)
    content = _content(node)
    failed = node.get("error") is True and role is Role.ASSISTANT
    status = MessageStatus.COMPLETE
    if failed:
        status = MessageStatus.FAILED
    elif role is Role.ASSISTANT and node.get("unfinished") is True:
        status = MessageStatus.INTERRUPTED
    return SourceMessage(
        source_id=message_id,
        parent_id=parent,
        role=role,
        content="" if failed else content,
        created_at=time_of(node.get("createdAt")),
        visible=bool(content.strip()) or failed,
        status=status,
        model=name_of(node.get("model")) if role is Role.ASSISTANT else None,
        finish_reason=_FINISHED.get(text_of(node.get("finish_reason")) or "") if role is Role.ASSISTANT else None,
        error=MessageError("engine_failed", content[:500] or "The answer failed.", retryable=True) if failed else None,
        counts=Counts(prompt_tokens=count_of(node.get("promptTokens")), output_tokens=count_of(node.get("tokenCount")))
        if role is Role.ASSISTANT
        else Counts(),
    )


def _role(node: JsonObject) -> Role:
    if text_of(node.get("sender")) == "System":
        return Role.SYSTEM
    by_user = node.get("isCreatedByUser")
    if isinstance(by_user, bool):
        return Role.USER if by_user else Role.ASSISTANT
    return Role.USER if (text_of(node.get("sender")) or "").lower() == "user" else Role.ASSISTANT


def _content(node: JsonObject) -> str:
    """``text``, or the parts of ``content`` that are texts."""
    text = text_of(node.get("text")) or ""
    if text.strip():
        return text
    parts = [_part(object_of(part)) for part in list_of(node.get("content"))]
    return "\n\n".join(part for part in parts if part)


def _part(part: JsonObject) -> str:
    kind = text_of(part.get("type"))
    if kind == "text":
        value = part.get("text")
        return text_of(value) or text_of(object_of(value).get("value")) or ""
    if kind == "image_file" or kind == "image_url":
        return "[image]"
    return ""
