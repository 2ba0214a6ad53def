"""The tree of one conversation's messages, as pure look-ups that every driver shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from antiphon.core.errors import NotFound
from antiphon.core.ids import MessageId
from antiphon.core.messages import Conversation, TreeNode


@dataclass(frozen=True, slots=True)
class PathWindow:
    """Which messages of a path a page shows, root side first, before their contents are read."""

    message_ids: tuple[MessageId, ...]
    siblings: Mapping[MessageId, tuple[MessageId, ...]]
    next_cursor: MessageId | None


class ConversationTree:
    """Nodes by id and by parent. Siblings, roots included, stand in order of (created_at, id)."""

    def __init__(self, nodes: Iterable[TreeNode]) -> None:
        self.nodes = tuple(sorted(nodes, key=_age))
        self._by_id: dict[MessageId, TreeNode] = {node.id: node for node in self.nodes}
        children: dict[MessageId | None, list[MessageId]] = {}
        for node in self.nodes:
            children.setdefault(node.parent_id, []).append(node.id)
        self._children = {parent: tuple(ids) for parent, ids in children.items()}

    def branch(self, leaf: MessageId) -> tuple[MessageId, ...]:
        """The ids root → ``leaf``; raises ``NotFound`` for a message of another conversation."""
        ids: list[MessageId] = []
        step: MessageId | None = leaf
        while step is not None:
            node = self._by_id.get(step)
            if node is None:
                raise NotFound
            ids.append(node.id)
            step = node.parent_id
        ids.reverse()
        return tuple(ids)

    def siblings(self, message_id: MessageId) -> tuple[MessageId, ...]:
        """All children of the message's parent, itself included."""
        return self._children[self._by_id[message_id].parent_id]

    def newest_leaf(self, message_id: MessageId) -> MessageId:
        """The newest message without children at or below ``message_id``; raises ``NotFound`` for a foreign one."""
        if message_id not in self._by_id:
            raise NotFound
        newest: TreeNode | None = None
        below = [message_id]
        while below:
            step = below.pop()
            children = self._children.get(step, ())
            below.extend(children)
            if not children:
                node = self._by_id[step]
                newest = node if newest is None else max(newest, node, key=_age)
        return message_id if newest is None else newest.id

    def shown_leaf(self, current_leaf_id: MessageId | None) -> MessageId | None:
        """Where the default path ends: the current leaf, followed down to its newest descendant."""
        return None if current_leaf_id is None else self.newest_leaf(current_leaf_id)

    def window(self, head: Conversation, *, leaf: MessageId | None, limit: int, before: MessageId | None) -> PathWindow:
        """The last ``limit`` messages of the path to ``leaf``, or of those above ``before``.

        A message has one path to its root, so ``before`` alone decides the page even when the current leaf has moved since.
        """
        if before is not None:
            ids = self.branch(before)[:-1]
        else:
            end = leaf if leaf is not None else self.shown_leaf(head.current_leaf_id)
            ids = () if end is None else self.branch(end)
        page = ids[max(0, len(ids) - limit) :]
        return PathWindow(
            message_ids=page,
            siblings={message_id: self.siblings(message_id) for message_id in page},
            next_cursor=page[0] if page and len(page) < len(ids) else None,
        )


def _age(node: TreeNode) -> tuple[datetime, MessageId]:
    return node.created_at, node.id
