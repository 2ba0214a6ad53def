"""From what a file tells to rows of ours: new ids, a sound tree, clean texts. Pure; what had to be repaired is noted in words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from antiphon.core.ids import ConversationId, IdKind, IdSource, MessageId
from antiphon.core.messages import Conversation, Message, MessageStatus, Role
from antiphon.orchestrator.transfer.source import SourceConversation, SourceMessage, Unreadable
from antiphon.stores.conversations.base import Feedback, Owner
from antiphon.stores.conversations.first_title import first_title
from antiphon.stores.transfers.base import Origin, WholeConversation

MAX_MESSAGES = 100_000
MAX_CONTENT_BYTES = 512_000
MAX_TITLE = 200
MAX_SOURCE_ID = 200
_CUT = "\n\n[cut]"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Planted:
    """Ready to store. ``notes`` are sentences about what had to be changed."""

    whole: WholeConversation
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tree:
    """The messages that stay, parents before children, each with the source id of its parent; and where each node's place went."""

    messages: tuple[tuple[SourceMessage, str | None], ...]
    kept: Mapping[str, str | None]
    notes: tuple[str, ...]


def plant(source: SourceConversation, owner: Owner, ids: IdSource, *, now: datetime) -> Planted:
    """``source`` as a conversation of ``owner``. Raises ``Unreadable`` for one without messages, or with too many."""
    if len(source.messages) > MAX_MESSAGES:
        raise Unreadable(f"It has more than {MAX_MESSAGES} messages.", source.source_id)
    tree = _tree_of(source.messages)
    if not tree.messages and not source.may_be_empty:
        raise Unreadable("It has no messages.", source.source_id)
    conversation_id = ConversationId(ids.new(IdKind.CONVERSATION))
    messages, places, cut = _messages(tree, conversation_id, ids, _Times(source.created_at, now))
    head = _head(source, owner, conversation_id, messages, now)
    current = None if source.current_id is None else tree.kept.get(source.current_id)
    leaf = places[current] if current is not None else _newest(messages)
    whole = WholeConversation(
        head=replace(head, current_leaf_id=leaf),
        messages=messages,
        origin=Origin(source.source, _short_id(source.source_id)),
        extra=source.extra,
        extras={places[node.source_id]: node.extra for node, _ in tree.messages if node.extra},
        feedback=_feedback(tree, places),
    )
    notes = (*source.notes, *tree.notes, *((_counted(cut, "text was", "texts were", "cut at 512 kB"),) if cut else ()))
    return Planted(whole, notes)


@dataclass(frozen=True, slots=True)
class _Times:
    """Moments for messages that have none, and a bound for those that say they are yet to come."""

    created_at: datetime | None
    now: datetime

    def of(self, moment: datetime | None, parent: datetime | None) -> datetime:
        return min(moment or parent or self.created_at or self.now, self.now)


def _tree_of(given: Sequence[SourceMessage]) -> _Tree:
    nodes: dict[str, SourceMessage] = {}
    for node in given:
        nodes.setdefault(node.source_id, node)
    parents = {node.source_id: node.parent_id if node.parent_id in nodes else None for node in nodes.values()}
    lost = sum(1 for node in nodes.values() if node.visible and node.parent_id is not None and node.parent_id not in nodes)
    circles = _break_circles(parents)
    kept = _kept(nodes, parents)
    notes: list[str] = []
    if len(nodes) < len(given):
        notes.append(_counted(len(given) - len(nodes), "message was", "messages were", "there twice"))
    if lost:
        notes.append(_counted(lost, "message", "messages", "had lost the one before"))
    if circles:
        notes.append(_counted(circles, "circle was", "circles were", "opened"))
    return _Tree(tuple(_in_order(nodes, parents, kept)), kept, tuple(notes))


def _break_circles(parents: dict[str, str | None]) -> int:
    """Cut every circle at one of its nodes; changes ``parents``. Returns how many there were."""
    circles = 0
    sound: set[str] = set()
    for start in parents:
        walked: dict[str, None] = {}
        step: str | None = start
        while step is not None and step not in sound and step not in walked:
            walked[step] = None
            step = parents[step]
        if step is not None and step in walked:
            parents[step] = None
            circles += 1
        sound.update(walked)
    return circles


def _kept(nodes: Mapping[str, SourceMessage], parents: Mapping[str, str | None]) -> dict[str, str | None]:
    """For every node the nearest visible one at or above it; ``None`` where there is none."""
    kept: dict[str, str | None] = {}
    for start in nodes:
        above: list[str] = []
        step: str | None = start
        while step is not None and step not in kept and not nodes[step].visible:
            above.append(step)
            step = parents[step]
        found = None if step is None else kept.get(step, step)
        kept.update(dict.fromkeys(above, found))
        if step is not None:
            kept.setdefault(step, step)
    return kept


def _in_order(
    nodes: Mapping[str, SourceMessage], parents: Mapping[str, str | None], kept: Mapping[str, str | None]
) -> list[tuple[SourceMessage, str | None]]:
    """Visible nodes, parents first, siblings as in the file."""
    children: dict[str | None, list[str]] = {}
    for node in nodes.values():
        if node.visible:
            above = parents[node.source_id]
            children.setdefault(None if above is None else kept[above], []).append(node.source_id)
    ordered: list[tuple[SourceMessage, str | None]] = []
    waiting: list[tuple[str, str | None]] = [(root, None) for root in reversed(children.get(None, []))]
    while waiting:
        name, parent = waiting.pop()
        ordered.append((nodes[name], parent))
        waiting.extend((child, name) for child in reversed(children.get(name, [])))
    return ordered


def _messages(
    tree: _Tree, conversation_id: ConversationId, ids: IdSource, times: _Times
) -> tuple[tuple[Message, ...], dict[str, MessageId], int]:
    """The messages, the ids they got, and how many texts were cut."""
    places: dict[str, MessageId] = {}
    made: dict[str, datetime] = {}
    messages: list[Message] = []
    cut = 0
    for node, parent in tree.messages:
        places[node.source_id] = MessageId(ids.new(IdKind.MESSAGE))
        made[node.source_id] = times.of(node.created_at, None if parent is None else made[parent])
        content = _bounded(node.content)
        cut += content is not node.content
        messages.append(
            Message(
                id=places[node.source_id],
                conversation_id=conversation_id,
                parent_id=None if parent is None else places[parent],
                role=node.role,
                content=content,
                status=node.status,
                created_at=made[node.source_id],
                model=node.model,
                requested_model=node.requested_model,
                finish_reason=node.finish_reason,
                prompt_tokens=node.counts.prompt_tokens,
                cached_tokens=node.counts.cached_tokens,
                output_tokens=node.counts.output_tokens,
                cost=node.counts.cost,
                error=node.error,
            )
        )
    return tuple(messages), places, cut


def _head(
    source: SourceConversation, owner: Owner, conversation_id: ConversationId, messages: Sequence[Message], now: datetime
) -> Conversation:
    """The head without its leaf. A foreign model is kept on the messages alone: here it could not be asked."""
    newest = max((message.created_at for message in messages), default=now)
    oldest = min((message.created_at for message in messages), default=now)
    title = _one_line(source.title)
    if not title and not source.may_be_empty:
        title = _one_line(first_title(next((message.content for message in messages if message.role is Role.USER), "")))
    return Conversation(
        id=conversation_id,
        tenant_id=owner.tenant_id,
        user_id=owner.user_id,
        title=title,
        model=source.model,
        current_leaf_id=None,
        version=1,
        pinned=source.pinned,
        archived=source.archived,
        temporary=False,
        created_at=min(source.created_at or oldest, now),
        updated_at=min(source.updated_at or newest, now),
        title_source=source.title_source,
        folder=source.folder,
    )


def _feedback(tree: _Tree, places: Mapping[str, MessageId]) -> dict[MessageId, Feedback]:
    return {
        places[node.source_id]: node.feedback
        for node, _ in tree.messages
        if node.feedback is not None and node.role is Role.ASSISTANT and node.status is not MessageStatus.STREAMING
    }


def _newest(messages: Sequence[Message]) -> MessageId | None:
    """The newest message that nobody answered."""
    answered = {message.parent_id for message in messages}
    leaves = [message for message in messages if message.id not in answered]
    return max(leaves, key=lambda message: (message.created_at, message.id)).id if leaves else None


def _one_line(title: str) -> str:
    return " ".join(_CONTROL.sub(" ", title).split())[:MAX_TITLE].rstrip()


def _bounded(content: str) -> str:
    if len(content) * 4 <= MAX_CONTENT_BYTES:
        return content
    encoded = content.encode()
    if len(encoded) <= MAX_CONTENT_BYTES:
        return content
    return encoded[: MAX_CONTENT_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _short_id(source_id: str) -> str:
    if len(source_id) <= MAX_SOURCE_ID:
        return source_id
    return "sha256:" + hashlib.sha256(source_id.encode()).hexdigest()


def _counted(count: int, one: str, many: str, rest: str) -> str:
    return f"{count} {one if count == 1 else many} {rest}."
