"""ChatGPT's export: ``mapping`` is a tree of nodes with ``parent`` and ``children``, ``current_node`` the leaf last shown.

The shape is not documented by its maker and changes; everything here may be missing. What a person never saw (system prompts,
context, thoughts, browsing state) is left out, and its children move up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from antiphon.core.messages import MessageStatus, Role, TitleSource
from antiphon.orchestrator.transfer.source import SourceConversation, SourceMessage, Unreadable
from antiphon.orchestrator.transfer.values import Json, JsonObject, id_of, list_of, name_of, object_of, text_of, time_of

SOURCE = "chatgpt"

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.ASSISTANT, "system": Role.SYSTEM}
_FINISHED = {"stop": "stop", "interrupted": "cancelled", "max_tokens": "length", "content_filter": "content_filter"}
_UNSEEN = frozenset({"model_editable_context", "user_editable_context", "thoughts", "reasoning_recap", "tether_browsing_display"})
_PRIVATE_CHANNELS = frozenset({"analysis", "justify"})


def recognises(value: JsonObject) -> bool:
    return "mapping" in value or ("current_node" in value and "conversation_id" in value)


def read(value: JsonObject) -> SourceConversation:
    """Raises ``Unreadable`` where there is no tree."""
    source_id = id_of(value.get("conversation_id")) or id_of(value.get("id")) or ""
    mapping = value.get("mapping")
    if not isinstance(mapping, dict):
        raise Unreadable("It has no messages.", source_id)
    said_by_children = _parents_by_children(mapping)
    messages = tuple(_message(node_id, object_of(node), mapping, said_by_children) for node_id, node in mapping.items())
    return SourceConversation(
        source=SOURCE,
        source_id=source_id,
        title=text_of(value.get("title")) or "",
        messages=messages,
        current_id=id_of(value.get("current_node")),
        created_at=time_of(value.get("create_time")),
        updated_at=time_of(value.get("update_time")),
        pinned=value.get("is_starred") is True or time_of(value.get("pinned_time")) is not None,
        archived=value.get("is_archived") is True,
        title_source=TitleSource.USER,
    )


def _parents_by_children(mapping: Mapping[str, Json]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node_id, node in mapping.items():
        for child in list_of(object_of(node).get("children")):
            if isinstance(child, str):
                found.setdefault(child, node_id)
    return found


def _message(node_id: str, node: JsonObject, mapping: Mapping[str, Json], said_by_children: Mapping[str, str]) -> SourceMessage:
    """A node whose ``parent`` link is missing or leads nowhere hangs below whoever names it as a child."""
    parent = id_of(node.get("parent"))
    if parent is None or parent not in mapping:
        parent = said_by_children.get(node_id, parent)
    message = object_of(node.get("message"))
    role = _ROLES.get(text_of(object_of(message.get("author")).get("role")) or "", Role.ASSISTANT)
    metadata, content = object_of(message.get("metadata")), object_of(message.get("content"))
    shown = _text(content, text_of(message.get("recipient")) or "all") if _is_seen(message, metadata, content) else ""
    finish_reason = _FINISHED.get(text_of(object_of(metadata.get("finish_details")).get("type")) or "")
    answered = role is Role.ASSISTANT
    return SourceMessage(
        source_id=node_id,
        parent_id=parent,
        role=role,
        content=shown,
        created_at=time_of(message.get("create_time")),
        visible=bool(shown.strip()),
        status=_status(text_of(message.get("status")), finish_reason) if answered else MessageStatus.COMPLETE,
        model=(name_of(metadata.get("model_slug")) or name_of(metadata.get("default_model_slug"))) if answered else None,
        finish_reason=finish_reason if answered else None,
    )


def _is_seen(message: JsonObject, metadata: JsonObject, content: JsonObject) -> bool:
    if metadata.get("is_visually_hidden_from_conversation") is True or metadata.get("is_user_system_message") is True:
        return False
    if text_of(message.get("channel")) in _PRIVATE_CHANNELS:
        return False
    return text_of(content.get("content_type")) not in _UNSEEN


def _status(status: str | None, finish_reason: str | None) -> MessageStatus:
    if status == "in_progress":
        return MessageStatus.INTERRUPTED
    return MessageStatus.CANCELLED if finish_reason == "cancelled" else MessageStatus.COMPLETE


def _text(content: JsonObject, recipient: str) -> str:
    kind = text_of(content.get("content_type")) or "text"
    render = _RENDER.get(kind)
    if render is None:
        return _plain(content) or f"[{kind}]"
    text = render(content)
    # What an answer sends to a tool is a program or a query, and reads as one.
    return _fenced(text, "") if kind == "text" and recipient != "all" and text.strip() else text


def _plain(content: JsonObject) -> str:
    parts = [_part(part) for part in list_of(content.get("parts"))]
    if parts:
        return "\n\n".join(part for part in parts if part)
    return text_of(content.get("text")) or text_of(content.get("result")) or ""


def _part(part: Json) -> str:
    """A text, or a line in the place of a picture or a sound."""
    if isinstance(part, str):
        return part
    members = object_of(part)
    spoken = text_of(members.get("text"))
    if spoken is not None:
        return spoken
    kind = text_of(members.get("content_type")) or "attachment"
    name = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "real_time_user_audio_video_asset_pointer": "audio"}.get(
        kind, kind
    )
    return f"[{name}]" if members else ""


def _code(content: JsonObject) -> str:
    text = text_of(content.get("text")) or ""
    language = name_of(content.get("language")) or ""
    return _fenced(text, language if language.isalnum() and language != "unknown" else "") if text.strip() else ""


def _output(content: JsonObject) -> str:
    text = text_of(content.get("text")) or ""
    return _fenced(text, "") if text.strip() else ""


def _quote(content: JsonObject) -> str:
    title, text = text_of(content.get("title")) or "", text_of(content.get("text")) or ""
    lines = "\n".join(f"> {line}" for line in text.splitlines())
    return f"> **{title}**\n{lines}" if title else lines


def _fenced(text: str, language: str) -> str:
    """``text`` in a fence that is longer than any inside it."""
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _backticks(text: str) -> list[str]:
    runs: list[str] = []
    for line in text.splitlines():
        stripped = line.lstrip()
        runs.append(stripped[: len(stripped) - len(stripped.lstrip("`"))])
    return runs


_RENDER: Mapping[str, Callable[[JsonObject], str]] = {
    "text": _plain,
    "multimodal_text": _plain,
    "code": _code,
    "execution_output": _output,
    "tether_quote": _quote,
    "system_error": _plain,
}
