"""Custody in memory: the reference driver."""

from __future__ import annotations

from datetime import datetime, timedelta

from antiphon.core.clock import to_ms
from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, TenantId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.conversations.paging import number_cursor_of, parse_number_cursor, parse_place_cursor, place_cursor_of
from antiphon.stores.custody.base import AuditPage, FeedbackPage, GivenFeedback, Purged
from antiphon.stores.memory import MemoryState


class MemoryCustody:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def purge(self, *, deleted_before: datetime, limit: int) -> Purged:
        state = self._state
        running = {one.conversation_id for one in state.generations.values() if not one.status.terminal}
        due = [name for name, at in state.deleted.items() if at < deleted_before and name not in running]
        due.sort(key=lambda name: state.deleted[name])
        taken = [one.id for one in state.generations.values() if one.conversation_id in due[:limit]]
        for name in due[:limit]:
            head = state.conversations[name]
            state.add_audit(Owner(head.tenant_id, head.user_id), "conversation.purge", name, deleted_before, by_server=True)
            self._drop(name)
        return Purged(len(due[:limit]), tuple(taken), more=len(due) > limit)

    def _drop(self, name: ConversationId) -> None:
        state = self._state
        gone = set(state.message_ids.pop(name, ()))
        state.docs = {place: doc for place, doc in state.docs.items() if place[0] != name}
        state.replays = {key: replay for key, replay in state.replays.items() if replay.accepted.conversation_id != name}
        state.feedback = {place: given for place, given in state.feedback.items() if place[1] not in gone}
        state.generations = {key: one for key, one in state.generations.items() if one.conversation_id != name}
        state.messages = {key: message for key, message in state.messages.items() if key not in gone}
        state.extras = {key: extra for key, extra in state.extras.items() if key not in gone}
        state.summaries = {place: summary for place, summary in state.summaries.items() if place[0] != name}
        state.preambles = {place: preamble for place, preamble in state.preambles.items() if place[0] != name}
        state.token_counts = {place: counts for place, counts in state.token_counts.items() if place[0] != name}
        state.origins.pop(name, None)
        del state.conversations[name], state.deleted[name]

    async def scrub(self) -> None:
        pass

    async def expire_copies(self, *, now: datetime) -> None:
        pass

    async def retire(self, *, now: datetime, limit: int) -> int:
        state, hidden = self._state, 0
        for head in list(state.conversations.values()):
            days = state.retention_days.get(head.tenant_id)
            if days is None or head.id in state.deleted or head.updated_at >= now - timedelta(days=days) or hidden == limit:
                continue
            owner = Owner(head.tenant_id, head.user_id)
            MemoryConversations(state).hide(head.id, now)
            state.add_audit(owner, "conversation.retire", head.id, now, by_server=True)
            hidden += 1
        return hidden

    async def set_retention(self, by: Owner, days: int | None, *, now: datetime) -> None:
        if by.tenant_id not in self._state.tenants:
            raise NotFound
        if days is None:
            self._state.retention_days.pop(by.tenant_id, None)
        else:
            self._state.retention_days[by.tenant_id] = days
        self._state.add_audit(by, "retention.set", "for ever" if days is None else f"{days} days", now)

    async def retention(self, tenant_id: TenantId) -> int | None:
        return self._state.retention_days.get(tenant_id)

    async def audit_page(self, tenant_id: TenantId, *, limit: int, after: str | None) -> AuditPage:
        below = None if after is None else parse_number_cursor(after)
        listed = [one for one in reversed(self._state.audit) if one.tenant_id == tenant_id and (below is None or one.number < below)]
        return AuditPage(tuple(listed[:limit]), number_cursor_of(listed[limit - 1].number) if len(listed) > limit else None)

    async def record(self, by: Owner, action: str, subject: str, *, now: datetime, by_server: bool = False) -> None:
        self._state.add_audit(by, action, subject, now, by_server=by_server)

    async def feedback_page(self, tenant_id: TenantId, *, limit: int, after: str | None) -> FeedbackPage:
        state = self._state
        below = None if after is None else parse_place_cursor(after)
        listed: list[GivenFeedback] = []
        for (user_id, message_id), stored in state.feedback.items():
            message = state.messages[message_id]
            head = state.conversations[message.conversation_id]
            place = (to_ms(stored.updated_at), message_id)
            if head.tenant_id == tenant_id and head.id not in state.deleted and (below is None or place < below):
                listed.append(GivenFeedback(user_id, head.id, message_id, message.model, stored.feedback, stored.updated_at))
        listed.sort(key=lambda given: (given.at, given.message_id), reverse=True)
        page = tuple(listed[:limit])
        return FeedbackPage(page, place_cursor_of(to_ms(page[-1].at), page[-1].message_id) if len(listed) > limit else None)
