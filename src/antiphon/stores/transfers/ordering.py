"""The one order in which a conversation's messages are exported."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.core.ids import MessageId
from antiphon.core.messages import Message


def parents_first(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Every branch root → leaf, one after the other; siblings, roots included, in order of (created_at, id)."""
    children: dict[MessageId | None, list[Message]] = {}
    for message in sorted(messages, key=lambda message: (message.created_at, message.id), reverse=True):
        children.setdefault(message.parent_id, []).append(message)
    ordered: list[Message] = []
    waiting = list(children.get(None, ()))
    while waiting:
        message = waiting.pop()
        ordered.append(message)
        waiting.extend(children.get(message.id, ()))
    return tuple(ordered)
