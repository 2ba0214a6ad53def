"""The calls of the public API, as values: what to send and what shape comes back. Both clients make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from antiphon.client.cursor import Opening
from antiphon.client.shapes import Conversation, ConversationPage, Generation, Me, ModelList, Path, PoolState

Shape = TypeVar("Shape")


class CurrentLeaf:
    """Where a message goes that names no parent."""


CURRENT_LEAF: Final = CurrentLeaf()


@dataclass(frozen=True, slots=True)
class Call(Generic[Shape]):
    method: str
    path: str
    shape: type[Shape]
    body: Mapping[str, object] | None = None


def me() -> Call[Me]:
    return Call("GET", "/v1/me", Me)


def models() -> Call[ModelList]:
    return Call("GET", "/v1/models", ModelList)


def pools() -> Call[tuple[PoolState, ...]]:
    return Call("GET", "/v1/admin/pools", tuple[PoolState, ...])


def new_conversation(title: str | None, model: str | None) -> Call[Conversation]:
    body = {key: value for key, value in (("title", title), ("model", model)) if value is not None}
    return Call("POST", "/v1/conversations", Conversation, body)


def conversations(limit: int, after: str | None) -> Call[ConversationPage]:
    query = urlencode({"limit": limit, **({"after": after} if after else {})})
    return Call("GET", f"/v1/conversations?{query}", ConversationPage)


def path(conversation_id: str, leaf: str | None, limit: int) -> Call[Path]:
    query = urlencode({"limit": limit, **({"leaf": leaf} if leaf else {})})
    return Call("GET", f"/v1/conversations/{conversation_id}/messages?{query}", Path)


def generation(generation_id: str) -> Call[Generation]:
    return Call("GET", f"/v1/generations/{generation_id}", Generation)


def cancel(generation_id: str, last_id: str) -> Call[Generation]:
    return Call("POST", f"/v1/generations/{generation_id}/cancel", Generation, {"seen_id": last_id} if last_id else {})


@dataclass(frozen=True, slots=True)
class Message:
    """What to say and where. ``content`` is ``None`` to have the user message ``parent`` answered once more."""

    content: str | None
    parent: str | CurrentLeaf | None = CURRENT_LEAF
    model: str | None = None
    max_tokens: int | None = None


def send(conversation_id: str, message: Message, idempotency_key: str) -> Opening:
    body: dict[str, object] = {"content": message.content}
    if not isinstance(message.parent, CurrentLeaf):
        body["parent_message_id"] = message.parent
    if message.model is not None:
        body["model"] = message.model
    if message.max_tokens is not None:
        body["params"] = {"max_tokens": message.max_tokens}
    return Opening(f"/v1/conversations/{conversation_id}/messages", body, idempotency_key)
