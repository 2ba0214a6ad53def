"""Rows of conversations and their messages, read and written inside a caller's transaction; both SQL drivers share these."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from antiphon.core.clock import to_ms
from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, GenerationId, MessageId, TenantId
from antiphon.core.messages import Conversation, Message
from antiphon.stores.conversations.base import Owner, PathPage
from antiphon.stores.conversations.tree import ConversationTree
from antiphon.stores.sql import rows, search
from antiphon.stores.sql.base import changed_values
from antiphon.stores.sql.prepared import Prepared, PreparedUpdate, matching
from antiphon.stores.sql.tables import conversations, feedback, generations, messages, shares

_IDS_PER_STATEMENT = 500
_WHOLE_PATH = 2**31


_LIVING = conversations.c.deleted_at.is_(None)
_IN_CONVERSATION = matching(messages, "tenant_id", "conversation_id")

_head = sa.select(conversations).where(*matching(conversations, "tenant_id", "user_id", "id"), _LIVING)
_select_head = Prepared(_head)
_select_head_locked = Prepared(_head.with_for_update())
_update_head = PreparedUpdate(conversations, "tenant_id", "id")
_select_message = Prepared(sa.select(messages).where(*_IN_CONVERSATION, *matching(messages, "id")))
_select_child = Prepared(sa.select(messages.c.id).where(*_IN_CONVERSATION, *matching(messages, "parent_id")).limit(1))
_select_tree = Prepared(
    sa.select(messages.c.id, messages.c.parent_id, messages.c.role, messages.c.status, messages.c.created_at).where(*_IN_CONVERSATION)
)
_UP = (
    "WITH RECURSIVE up (id, parent_id, depth) AS ("
    "SELECT id, parent_id, 0 FROM messages WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND id = :id "
    "UNION ALL SELECT m.id, m.parent_id, up.depth + 1 FROM up JOIN messages AS m "
    "ON m.tenant_id = :tenant_id AND m.conversation_id = :conversation_id AND m.id = up.parent_id WHERE up.depth < :last - 1) "
)
_select_up = Prepared(sa.text(f"{_UP}SELECT id FROM up ORDER BY depth DESC"))  # noqa: S608
_select_last = Prepared(
    sa.text(
        f"{_UP}SELECT m.* FROM up JOIN messages AS m "  # noqa: S608
        "ON m.tenant_id = :tenant_id AND m.conversation_id = :conversation_id AND m.id = up.id ORDER BY up.depth DESC"
    )
)
_select_newest_leaf = Prepared(
    sa.text(
        "WITH RECURSIVE below (id, created_at) AS ("
        "SELECT id, created_at FROM messages WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND id = :id "
        "UNION ALL SELECT m.id, m.created_at FROM below JOIN messages AS m "
        "ON m.tenant_id = :tenant_id AND m.conversation_id = :conversation_id AND m.parent_id = below.id) "
        "SELECT id FROM below WHERE NOT EXISTS (SELECT 1 FROM messages AS c "
        "WHERE c.tenant_id = :tenant_id AND c.conversation_id = :conversation_id AND c.parent_id = below.id) "
        "ORDER BY created_at DESC, id DESC LIMIT 1"
    )
)
_insert_message = Prepared(messages.insert())
_update_message = PreparedUpdate(messages, "tenant_id", "conversation_id", "id")
_select_owned_message = Prepared(
    sa.select(messages)
    .join(
        conversations,
        sa.and_(conversations.c.tenant_id == messages.c.tenant_id, conversations.c.id == messages.c.conversation_id, _LIVING),
    )
    .where(messages.c.tenant_id == sa.bindparam("tenant_id"), messages.c.id == sa.bindparam("id"))
    .where(conversations.c.user_id == sa.bindparam("user_id"))
)


def select_head(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, *, lock: bool = False) -> Conversation:
    """The owner's living conversation; raises ``NotFound``. ``lock`` holds its row, on a database that locks rows."""
    asked = {"tenant_id": owner.tenant_id, "user_id": owner.user_id, "id": conversation_id}
    row = (_select_head_locked if lock else _select_head).run(tx, asked).one_or_none()
    if row is None:
        raise NotFound
    return rows.conversation_of(row)


def update_head(tx: sa.Connection, before: Conversation, after: Conversation) -> None:
    """Write the columns that differ, and the title into the index."""
    update_columns(tx, before, after)
    if before.title != after.title and not after.temporary:
        search.put(tx, Owner(after.tenant_id, after.user_id), after.id, None, before.title, after.title)


def update_columns(tx: sa.Connection, before: Conversation, after: Conversation) -> None:
    """Write the columns that differ; a title that changes is the caller's to index."""
    values = changed_values(rows.conversation_values(before), rows.conversation_values(after))
    if values:
        _update_head.run(tx, values, {"tenant_id": after.tenant_id, "id": after.id})


def select_message(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_id: MessageId) -> Message:
    """A message of that conversation, whose owner has been checked; raises ``NotFound``."""
    asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "id": message_id}
    row = _select_message.run(tx, asked).one_or_none()
    if row is None:
        raise NotFound
    return rows.message_of(row)


def select_owned_message(tx: sa.Connection, owner: Owner, message_id: MessageId) -> Message:
    """A message of a living conversation of the owner; raises ``NotFound``."""
    asked = {"tenant_id": owner.tenant_id, "user_id": owner.user_id, "id": message_id}
    row = _select_owned_message.run(tx, asked).one_or_none()
    if row is None:
        raise NotFound
    return rows.message_of(row)


def select_newest_leaf(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_id: MessageId) -> MessageId:
    """The newest message without children at or below ``message_id``; costs what is below. Raises ``NotFound``."""
    if not has_children(tx, owner, conversation_id, message_id):
        return message_id
    asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "id": message_id}
    found = _select_newest_leaf.run(tx, asked).scalar_one_or_none()
    if found is None:
        raise NotFound
    return found


def select_page(
    tx: sa.Connection, owner: Owner, head: Conversation, *, leaf: MessageId | None, limit: int, before: MessageId | None
) -> PathPage:
    """As ``Conversations.path``; costs the page and its siblings, however long the path is. Raises ``NotFound``."""
    if before is not None:
        path = select_last(tx, owner, head.id, before, limit + 2)[:-1]
    elif leaf is not None:
        path = select_last(tx, owner, head.id, leaf, limit + 1)
    elif head.current_leaf_id is not None:
        path = select_last(tx, owner, head.id, select_newest_leaf(tx, owner, head.id, head.current_leaf_id), limit + 1)
    else:
        path = ()
    page = path[max(0, len(path) - limit) :]
    siblings = _select_siblings(tx, owner, head.id, [message.parent_id for message in page])
    return PathPage(
        page,
        {message.id: siblings[message.parent_id] for message in page},
        page[0].id if page and len(page) < len(path) else None,
        _select_ratings(tx, owner, [message.id for message in page]),
    )


def _select_ratings(tx: sa.Connection, owner: Owner, message_ids: Sequence[MessageId]) -> dict[MessageId, int]:
    ours = (feedback.c.tenant_id == owner.tenant_id, feedback.c.user_id == owner.user_id)
    query = sa.select(feedback.c.message_id, feedback.c.rating).where(*ours, feedback.c.message_id.in_(message_ids))
    return {row.message_id: row.rating for row in tx.execute(query)} if message_ids else {}


def _select_siblings(
    tx: sa.Connection, owner: Owner, conversation_id: ConversationId, parents: Sequence[MessageId | None]
) -> dict[MessageId | None, tuple[MessageId, ...]]:
    """The children of each of ``parents``, at most a page of them, in order of creation; roots for ``None``."""
    named = [parent for parent in parents if parent is not None]
    ours = (messages.c.tenant_id == owner.tenant_id, messages.c.conversation_id == conversation_id)
    below = messages.c.parent_id.in_(named)
    if len(named) < len(parents):
        below = sa.or_(below, messages.c.parent_id.is_(None))
    query = sa.select(messages.c.parent_id, messages.c.id).where(*ours, below).order_by(messages.c.created_at, messages.c.id)
    found: dict[MessageId | None, list[MessageId]] = {}
    for parent, message_id in tx.execute(query).all() if parents else ():
        found.setdefault(parent, []).append(message_id)
    return {parent: tuple(ids) for parent, ids in found.items()}


def select_tree(tx: sa.Connection, owner: Owner, conversation_id: ConversationId) -> ConversationTree:
    """The shape of the whole conversation, read from one index."""
    found = _select_tree.run(tx, {"tenant_id": owner.tenant_id, "conversation_id": conversation_id})
    return ConversationTree(rows.node_of(row) for row in found)


def has_children(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_id: MessageId) -> bool:
    asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "parent_id": message_id}
    return _select_child.run(tx, asked).first() is not None


def select_messages(
    tx: sa.Connection, owner: Owner, conversation_id: ConversationId, message_ids: Sequence[MessageId]
) -> tuple[Message, ...]:
    """Those messages, in that order; raises ``NotFound``."""
    found: dict[MessageId, Message] = {}
    in_conversation = (messages.c.tenant_id == owner.tenant_id, messages.c.conversation_id == conversation_id)
    for start in range(0, len(message_ids), _IDS_PER_STATEMENT):
        some = message_ids[start : start + _IDS_PER_STATEMENT]
        for row in tx.execute(sa.select(messages).where(*in_conversation, messages.c.id.in_(some))):
            message = rows.message_of(row)
            found[message.id] = message
    if any(message_id not in found for message_id in message_ids):
        raise NotFound
    return tuple(found[message_id] for message_id in message_ids)


def select_last(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, leaf: MessageId, last: int) -> tuple[Message, ...]:
    """The ``last`` messages of the path to ``leaf``, root side first, found by their parents; raises ``NotFound``."""
    asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "id": leaf, "last": last}
    found = tuple(rows.message_of(row) for row in _select_last.run(tx, asked))
    if not found:
        raise NotFound
    return found


def select_path(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[Message, ...]:
    """The messages root → ``leaf``; raises ``NotFound``."""
    return select_last(tx, owner, conversation_id, leaf, _WHOLE_PATH)


def select_path_ids(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, leaf: MessageId) -> tuple[MessageId, ...]:
    """The ids root → ``leaf``; raises ``NotFound``."""
    asked = {"tenant_id": owner.tenant_id, "conversation_id": conversation_id, "id": leaf, "last": _WHOLE_PATH}
    found = tuple(row.id for row in _select_up.run(tx, asked))
    if not found:
        raise NotFound
    return found


def insert_messages(tx: sa.Connection, tenant_id: TenantId, *added: Message) -> None:
    """Insert them in that order, at least one."""
    _insert_message.run_each(tx, [{"tenant_id": tenant_id, **rows.message_values(message)} for message in added])


def update_message(tx: sa.Connection, tenant_id: TenantId, before: Message, after: Message) -> None:
    """Write the columns that differ."""
    values = changed_values(rows.message_values(before), rows.message_values(after))
    key = {"tenant_id": tenant_id, "conversation_id": after.conversation_id, "id": after.id}
    if values:
        _update_message.run(tx, values, key)


def hide(tx: sa.Connection, owner: Owner, conversation_id: ConversationId, now: datetime) -> tuple[GenerationId, ...]:
    """Hide one conversation, end its shares, flag its open generations; returns those."""
    tenant_id = owner.tenant_id
    hidden = conversations.update().where(conversations.c.tenant_id == tenant_id, conversations.c.id == conversation_id)
    tx.execute(hidden.values(deleted_at=to_ms(now)))
    tx.execute(shares.delete().where(shares.c.tenant_id == tenant_id, shares.c.conversation_id == conversation_id))
    still_open = (
        generations.c.tenant_id == tenant_id,
        generations.c.conversation_id == conversation_id,
        generations.c.status.in_(["queued", "running"]),
    )
    in_order = sa.select(generations.c.id).where(*still_open).order_by(generations.c.created_at, generations.c.id)
    running = tuple(tx.execute(in_order).scalars())
    if running:
        asked = sa.func.coalesce(generations.c.cancel_requested_at, to_ms(now))
        tx.execute(generations.update().where(*still_open).values(cancel_requested_at=asked))
    return running
