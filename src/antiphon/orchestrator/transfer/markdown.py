"""A conversation as a document for people: the path that is shown, with a note where there are other versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiphon.core.ids import MessageId
from antiphon.core.messages import Message, MessageStatus, Role
from antiphon.stores.transfers.base import WholeConversation

_SPEAKERS: Mapping[Role, str] = {Role.USER: "You", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System"}
_ENDINGS: Mapping[MessageStatus, str] = {
    MessageStatus.STREAMING: "still being written",
    MessageStatus.CANCELLED: "stopped",
    MessageStatus.FAILED: "failed",
    MessageStatus.INTERRUPTED: "interrupted",
}


def document_of(whole: WholeConversation) -> str:
    """Headings, times and texts; a text stands as it was written, so its own Markdown is kept."""
    head = whole.head
    title = " ".join(head.title.split()) or "Untitled"
    parts = [f"# {title}\n\n*{head.created_at:%Y-%m-%d %H:%M} UTC*\n"]
    siblings: dict[MessageId | None, list[Message]] = {}
    for message in whole.messages:
        siblings.setdefault(message.parent_id, []).append(message)
    parts.extend(_section(message, siblings[message.parent_id]) for message in _shown(whole, siblings))
    return "\n".join(parts)


def _shown(whole: WholeConversation, children: Mapping[MessageId | None, Sequence[Message]]) -> list[Message]:
    """Root → current leaf, and on to the newest message below it."""
    by_id = {message.id: message for message in whole.messages}
    path: list[Message] = []
    step = by_id.get(whole.head.current_leaf_id) if whole.head.current_leaf_id is not None else None
    below = step
    while step is not None:
        path.append(step)
        step = None if step.parent_id is None else by_id.get(step.parent_id)
    path.reverse()
    while below is not None and children.get(below.id):
        below = children[below.id][-1]
        path.append(below)
    return path


def _section(message: Message, versions: Sequence[Message]) -> str:
    facts = [f"{message.created_at:%Y-%m-%d %H:%M}"]
    if message.role is Role.ASSISTANT and message.model:
        facts.insert(0, message.model)
    if len(versions) > 1:
        place = [version.id for version in versions].index(message.id) + 1
        facts.append(f"version {place} of {len(versions)}")
    if message.status in _ENDINGS:
        facts.append(_ENDINGS[message.status])
    text = message.content.strip() or (message.error.message if message.error is not None else "")
    return f"## {_SPEAKERS[message.role]}\n\n*{' · '.join(facts)}*\n\n{text}\n"
