"""Shares on SQL. The picture is one JSON text: it is read whole or not at all."""

from __future__ import annotations

from datetime import datetime

import msgspec
import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, ShareId
from antiphon.core.messages import Conversation, Message
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.paging import parse_share_cursor, share_cursor_of
from antiphon.stores.shares.base import Share, SharedMessage, SharePage
from antiphon.stores.shares.freezing import frozen
from antiphon.stores.sql.base import Database, across_tenants
from antiphon.stores.sql.records import add_audit
from antiphon.stores.sql.rows import Row
from antiphon.stores.sql.tables import shares
from antiphon.stores.sql.trees import select_head, select_newest_leaf, select_path

_NO_MESSAGES = "[]"


class SqlShares:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, owner: Owner, conversation_id: ConversationId, *, share_id: ShareId, token: str, now: datetime) -> Share:
        def freeze(tx: sa.Connection) -> Share:
            head = select_head(tx, owner, conversation_id, lock=True)
            messages = frozen(_shown_path(tx, owner, head))
            share = Share(share_id, owner.tenant_id, owner.user_id, conversation_id, token, head.title, messages, now)
            tx.execute(shares.insert(), _values(share))
            add_audit(tx, owner, "share.create", share_id, now)
            return share

        return await self._db.write(freeze)

    async def page(self, owner: Owner, *, limit: int, after: str | None) -> SharePage:
        listed = sa.select(*(column for column in shares.c if column.name != "messages"), sa.literal(_NO_MESSAGES).label("messages"))
        listed = listed.where(shares.c.tenant_id == owner.tenant_id, shares.c.user_id == owner.user_id)
        if after is not None:
            listed = listed.where(shares.c.id < parse_share_cursor(after))
        listed = listed.order_by(shares.c.id.desc()).limit(limit + 1)
        found = [_share_of(row) for row in await self._db.read(lambda tx: tx.execute(listed).all())]
        return SharePage(tuple(found[:limit]), share_cursor_of(found[limit - 1].id) if len(found) > limit else None)

    async def read(self, token: str) -> Share:
        query = across_tenants(sa.select(shares).where(shares.c.token == token), "share")
        row = await self._db.read(lambda tx: tx.execute(query).one_or_none())
        if row is None:
            raise NotFound
        return _share_of(row)

    async def revoke(self, owner: Owner, share_id: ShareId, *, now: datetime) -> None:
        own = shares.delete().where(shares.c.tenant_id == owner.tenant_id, shares.c.user_id == owner.user_id, shares.c.id == share_id)

        def end(tx: sa.Connection) -> None:
            if tx.execute(own).rowcount != 1:
                raise NotFound
            add_audit(tx, owner, "share.revoke", share_id, now)

        await self._db.write(end)


def _shown_path(tx: sa.Connection, owner: Owner, head: Conversation) -> tuple[Message, ...]:
    if head.current_leaf_id is None:
        return ()
    return select_path(tx, owner, head.id, select_newest_leaf(tx, owner, head.id, head.current_leaf_id))


def _values(share: Share) -> dict[str, str | int]:
    return {
        "tenant_id": share.tenant_id,
        "id": share.id,
        "user_id": share.user_id,
        "conversation_id": share.conversation_id,
        "token": share.token,
        "title": share.title,
        "messages": msgspec.json.encode(share.messages).decode(),
        "created_at": to_ms(share.created_at),
    }


def _share_of(row: Row) -> Share:
    messages = msgspec.json.decode(row.messages, type=tuple[SharedMessage, ...])
    created_at = from_ms(row.created_at)
    return Share(row.id, row.tenant_id, row.user_id, row.conversation_id, row.token, row.title, messages, created_at)
