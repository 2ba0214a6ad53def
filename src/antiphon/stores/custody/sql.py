"""Custody on SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import sqlalchemy as sa

from antiphon.core.clock import from_ms, to_ms
from antiphon.core.errors import NotFound
from antiphon.core.ids import GenerationId, TenantId
from antiphon.stores.conversations.base import Feedback, Owner
from antiphon.stores.conversations.paging import number_cursor_of, parse_number_cursor, parse_place_cursor, place_cursor_of
from antiphon.stores.custody.base import AuditEntry, AuditPage, FeedbackPage, GivenFeedback, Purged
from antiphon.stores.sql import search
from antiphon.stores.sql.base import Database, Gone, across_tenants
from antiphon.stores.sql.records import add_audit
from antiphon.stores.sql.rows import Row
from antiphon.stores.sql.tables import (
    audit,
    conversations,
    feedback,
    generations,
    idempotency,
    message_extras,
    messages,
    origins,
    preambles,
    shares,
    summaries,
    tenants,
    token_counts,
)
from antiphon.stores.sql.trees import hide

_TIDY_PAGES = 500
_CHILDREN = (idempotency, shares, feedback, generations, message_extras, origins, summaries, preambles, token_counts, messages)


class SqlCustody:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def purge(self, *, deleted_before: datetime, limit: int) -> Purged:
        running = (
            sa.select(sa.literal(1))
            .where(
                generations.c.tenant_id == conversations.c.tenant_id,
                generations.c.conversation_id == conversations.c.id,
                generations.c.status.in_(["queued", "running"]),
            )
            .exists()
        )
        due = (
            sa.select(conversations.c.tenant_id, conversations.c.user_id, conversations.c.id)
            .where(conversations.c.deleted_at.is_not(None), conversations.c.deleted_at < to_ms(deleted_before), ~running)
            .order_by(conversations.c.deleted_at)
            .limit(limit + 1)
        )

        def look(tx: sa.Connection) -> list[Gone]:
            return [Gone(Owner(row.tenant_id, row.user_id), row.id) for row in tx.execute(across_tenants(due, "purge")).all()]

        found = await self._db.read(look)
        gone = found[:limit]
        if not gone:
            return Purged(0, (), more=False)
        # Copies first: what is still in the database after a crash here is due again.
        await self._db.forget(gone)
        taken = await self._db.write(lambda tx: _take(tx, gone, deleted_before))
        return Purged(len(gone), taken, more=len(found) > limit)

    async def scrub(self) -> None:
        pages = -_TIDY_PAGES
        while await self._db.write(lambda tx, pages=pages: search.tidy(tx, pages), durable=False):
            pages = _TIDY_PAGES
        await self._db.fold()

    async def expire_copies(self, *, now: datetime) -> None:
        await self._db.expire_copies(now=now)

    async def retire(self, *, now: datetime, limit: int) -> int:
        keeping = sa.select(tenants.c.tenant_id, tenants.c.retention_days).where(tenants.c.retention_days.is_not(None))

        def hide_unused(tx: sa.Connection) -> int:
            hidden = 0
            for tenant in tx.execute(across_tenants(keeping, "retire")).all():
                unused_since = to_ms(now - timedelta(days=tenant.retention_days))
                unused = (
                    sa.select(conversations.c.id, conversations.c.user_id)
                    .where(
                        conversations.c.tenant_id == tenant.tenant_id,
                        conversations.c.deleted_at.is_(None),
                        conversations.c.updated_at < unused_since,
                    )
                    .limit(limit - hidden)
                )
                for row in tx.execute(unused).all():
                    owner = Owner(tenant.tenant_id, row.user_id)
                    hide(tx, owner, row.id, now)
                    add_audit(tx, owner, "conversation.retire", row.id, now, by_server=True)
                    hidden += 1
            return hidden

        return await self._db.write(hide_unused)

    async def set_retention(self, by: Owner, days: int | None, *, now: datetime) -> None:
        def put(tx: sa.Connection) -> None:
            changed = tenants.update().where(tenants.c.tenant_id == by.tenant_id).values(retention_days=days)
            if tx.execute(changed).rowcount != 1:
                raise NotFound
            add_audit(tx, by, "retention.set", "for ever" if days is None else f"{days} days", now)

        await self._db.write(put)

    async def retention(self, tenant_id: TenantId) -> int | None:
        query = sa.select(tenants.c.retention_days).where(tenants.c.tenant_id == tenant_id)
        return await self._db.read(lambda tx: tx.execute(query).scalar_one_or_none())

    async def audit_page(self, tenant_id: TenantId, *, limit: int, after: str | None) -> AuditPage:
        listed = sa.select(audit).where(audit.c.tenant_id == tenant_id).order_by(audit.c.id.desc()).limit(limit + 1)
        if after is not None:
            listed = listed.where(audit.c.id < parse_number_cursor(after))
        found = [_entry_of(row) for row in await self._db.read(lambda tx: tx.execute(listed).all())]
        return AuditPage(tuple(found[:limit]), number_cursor_of(found[limit - 1].number) if len(found) > limit else None)

    async def record(self, by: Owner, action: str, subject: str, *, now: datetime, by_server: bool = False) -> None:
        await self._db.write(lambda tx: add_audit(tx, by, action, subject, now, by_server=by_server))

    async def feedback_page(self, tenant_id: TenantId, *, limit: int, after: str | None) -> FeedbackPage:
        in_message = sa.and_(
            messages.c.tenant_id == feedback.c.tenant_id,
            messages.c.conversation_id == feedback.c.conversation_id,
            messages.c.id == feedback.c.message_id,
        )
        living = sa.and_(
            conversations.c.tenant_id == feedback.c.tenant_id,
            conversations.c.id == feedback.c.conversation_id,
            conversations.c.deleted_at.is_(None),
        )
        listed = (
            sa.select(feedback, messages.c.model)
            .join(messages, in_message)
            .join(conversations, living)
            .where(feedback.c.tenant_id == tenant_id)
            .order_by(feedback.c.updated_at.desc(), feedback.c.message_id.desc())
            .limit(limit + 1)
        )
        if after is not None:
            listed = listed.where(sa.tuple_(feedback.c.updated_at, feedback.c.message_id) < parse_place_cursor(after))
        found = [_feedback_of(row) for row in await self._db.read(lambda tx: tx.execute(listed).all())]
        page = tuple(found[:limit])
        return FeedbackPage(page, place_cursor_of(to_ms(page[-1].at), page[-1].message_id) if len(found) > limit else None)


def _take(tx: sa.Connection, gone: Sequence[Gone], now: datetime) -> tuple[GenerationId, ...]:
    """Delete the rows of ``gone``, which nobody can bring back to life; returns their generations."""
    taken: list[GenerationId] = []
    for owner, conversation_id in gone:
        search.drop_conversation(tx, owner, conversation_id)
        named = (generations.c.tenant_id == owner.tenant_id, generations.c.conversation_id == conversation_id)
        taken.extend(tx.execute(sa.select(generations.c.id).where(*named)).scalars())
        for table in _CHILDREN:
            tx.execute(table.delete().where(table.c.tenant_id == owner.tenant_id, table.c.conversation_id == conversation_id))
        tx.execute(conversations.delete().where(conversations.c.tenant_id == owner.tenant_id, conversations.c.id == conversation_id))
        add_audit(tx, owner, "conversation.purge", conversation_id, now, by_server=True)
    return tuple(taken)


def _entry_of(row: Row) -> AuditEntry:
    return AuditEntry(row.id, row.tenant_id, row.user_id, row.action, row.subject, from_ms(row.at))


def _feedback_of(row: Row) -> GivenFeedback:
    given = Feedback(row.rating, msgspec.json.decode(row.reasons, type=tuple[str, ...]), row.comment)
    return GivenFeedback(row.user_id, row.conversation_id, row.message_id, row.model, given, from_ms(row.updated_at))
