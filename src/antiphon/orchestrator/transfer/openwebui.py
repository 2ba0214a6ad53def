"""Open WebUI's export: ``chat.history.messages`` is a tree of messages with ``parentId`` and ``childrenIds``, ``currentId`` the leaf."""

from __future__ import annotations

import re

from antiphon.core.messages import MessageError, MessageStatus, Role, TitleSource
from antiphon.orchestrator.transfer.source import Counts, SourceConversation, SourceMessage, Unreadable
from antiphon.orchestrator.transfer.values import Json, JsonObject, count_of, id_of, list_of, name_of, object_of, text_of, time_of

SOURCE = "openwebui"

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.ASSISTANT}
_REASONING = re.compile(r'<details type="reasoning".*?</details>\s*', re.DOTALL)
_MAX_REASONING_SCAN = 1 << 20


def recognises(value: JsonObject) -> bool:
    return isinstance(value.get("chat"), dict) or "messages" in object_of(value.get("history"))


def read(value: JsonObject) -> SourceConversation:
    """Raises ``Unreadable`` where there are no messages at all. An export without ``history`` has its path in ``messages``."""
    chat = object_of(value.get("chat")) or value
    source_id = id_of(value.get("id")) or id_of(chat.get("id")) or ""
    history = object_of(chat.get("history"))
    tree = history.get("messages")
    if isinstance(tree, dict):
        messages = _tree(tree)
    elif isinstance(chat.get("messages"), list):
        messages = _path(list_of(chat.get("messages")))
    else:
        raise Unreadable("It has no messages.", source_id)
    return SourceConversation(
        source=SOURCE,
        source_id=source_id,
        title=text_of(value.get("title")) or text_of(chat.get("title")) or "",
        messages=messages,
        current_id=id_of(history.get("currentId")) or (messages[-1].source_id if messages and not isinstance(tree, dict) else None),
        created_at=time_of(value.get("created_at")) or time_of(chat.get("timestamp")),
        updated_at=time_of(value.get("updated_at")),
        pinned=value.get("pinned") is True,
        archived=value.get("archived") is True,
        title_source=TitleSource.USER,
    )


def _tree(tree: JsonObject) -> tuple[SourceMessage, ...]:
    said_by_children: dict[str, str] = {}
    for message_id, message in tree.items():
        for child in list_of(object_of(message).get("childrenIds")):
            if isinstance(child, str):
                said_by_children.setdefault(child, message_id)
    messages: list[SourceMessage] = []
    for message_id, value in tree.items():
        message = object_of(value)
        parent = id_of(message.get("parentId"))
        if parent is None or parent not in tree:
            parent = said_by_children.get(message_id, parent)
        messages.append(_message(message_id, parent, message))
    return tuple(messages)


def _path(values: list[Json]) -> tuple[SourceMessage, ...]:
    """A list without links is one path."""
    messages: list[SourceMessage] = []
    for number, value in enumerate(values):
        message = object_of(value)
        parent = id_of(message.get("parentId")) or (messages[-1].source_id if messages else None)
        messages.append(_message(id_of(message.get("id")) or f"#{number}", parent, message))
    return tuple(messages)


def _message(message_id: str, parent: str | None, message: JsonObject) -> SourceMessage:
    role = _ROLES.get(text_of(message.get("role")) or "", Role.ASSISTANT)
    content = _content(message.get("content"))
    error = _error(message.get("error")) if role is Role.ASSISTANT else None
    usage = object_of(message.get("usage"))
    status = MessageStatus.COMPLETE
    if error is not None:
        status = MessageStatus.FAILED
    elif role is Role.ASSISTANT and message.get("done") is False:
        status = MessageStatus.INTERRUPTED
    return SourceMessage(
        source_id=message_id,
        parent_id=parent,
        role=role,
        content=content,
        created_at=time_of(message.get("timestamp")),
        visible=bool(content.strip()) or error is not None,
        status=status,
        model=name_of(message.get("model")) if role is Role.ASSISTANT else None,
        error=error,
        counts=Counts(
            prompt_tokens=count_of(usage.get("prompt_tokens")) or count_of(usage.get("prompt_eval_count")),
            output_tokens=count_of(usage.get("completion_tokens")) or count_of(usage.get("eval_count")),
        ),
    )


def _content(value: Json) -> str:
    """A text, or the texts of a list of parts; thoughts shown in a fold are left out."""
    if isinstance(value, list):
        value = "\n\n".join(text_of(object_of(part).get("text")) or "" for part in value if object_of(part).get("type") == "text")
    text = text_of(value) or ""
    return _REASONING.sub("", text) if len(text) < _MAX_REASONING_SCAN else text


def _error(value: Json) -> MessageError | None:
    if value is None or value is False:
        return None
    said = text_of(value) or text_of(object_of(value).get("content")) or text_of(object_of(value).get("message")) or ""
    return MessageError("engine_failed", said[:500] or "The answer failed where this conversation came from.", retryable=True)
