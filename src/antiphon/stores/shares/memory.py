"""Shares in memory: the reference driver."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, ShareId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import find_conversation, tree_of
from antiphon.stores.conversations.paging import parse_share_cursor, share_cursor_of
from antiphon.stores.memory import MemoryState
from antiphon.stores.shares.base import Share, SharePage
from antiphon.stores.shares.freezing import frozen


class MemoryShares:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def create(self, owner: Owner, conversation_id: ConversationId, *, share_id: ShareId, token: str, now: datetime) -> Share:
        state = self._state
        head = find_conversation(state, owner, conversation_id)
        tree = tree_of(state, conversation_id)
        leaf = tree.shown_leaf(head.current_leaf_id)
        path = () if leaf is None else tree.branch(leaf)
        messages = frozen([state.messages[message_id] for message_id in path])
        share = Share(share_id, owner.tenant_id, owner.user_id, conversation_id, token, head.title, messages, now)
        state.shares[share_id] = share
        state.add_audit(owner, "share.create", share_id, now)
        return share

    async def page(self, owner: Owner, *, limit: int, after: str | None) -> SharePage:
        below = None if after is None else parse_share_cursor(after)
        own = [
            replace(share, messages=())
            for share in self._state.shares.values()
            if (share.tenant_id, share.user_id) == (owner.tenant_id, owner.user_id) and (below is None or share.id < below)
        ]
        own.sort(key=lambda share: share.id, reverse=True)
        return SharePage(tuple(own[:limit]), share_cursor_of(own[limit - 1].id) if len(own) > limit else None)

    async def read(self, token: str) -> Share:
        for share in self._state.shares.values():
            if share.token == token:
                return share
        raise NotFound

    async def revoke(self, owner: Owner, share_id: ShareId, *, now: datetime) -> None:
        share = self._state.shares.get(share_id)
        if share is None or (share.tenant_id, share.user_id) != (owner.tenant_id, owner.user_id):
            raise NotFound
        del self._state.shares[share_id]
        self._state.add_audit(owner, "share.revoke", share_id, now)
