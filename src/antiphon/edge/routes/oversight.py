"""What the operator sees and sets of their tenant's data: the audit, feedback, retention."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from antiphon.core.clock import rfc3339
from antiphon.edge.access import ADMIN, Caller, GuardedRoute, Services, guarded
from antiphon.edge.paths import PageCursor, PageLimit
from antiphon.edge.schemas import RetentionChange
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1/admin", tags=["admin"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    user_id: str | None
    action: str
    subject: str
    at: str


@dataclass(frozen=True, slots=True)
class AuditPageAnswer:
    data: list[AuditAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class FeedbackAnswer:
    user_id: str
    conversation_id: str
    message_id: str
    model: str | None
    rating: int
    reasons: list[str]
    comment: str
    at: str


@dataclass(frozen=True, slots=True)
class FeedbackPageAnswer:
    data: list[FeedbackAnswer]
    next: str | None


@dataclass(frozen=True, slots=True)
class RetentionAnswer:
    """Days after its last use that a conversation is kept; null is for ever."""

    days: int | None


@router.get("/audit")
@guarded(ADMIN)
async def list_audit(caller: Caller, services: Services, after: PageCursor, limit: PageLimit = 30) -> AuditPageAnswer:
    """Who did what in this tenant, newest first."""
    page = await services.custody.audit_page(caller.tenant_id, limit=limit, after=after)
    return AuditPageAnswer([AuditAnswer(one.user_id, one.action, one.subject, rfc3339(one.at)) for one in page.entries], page.next_cursor)


@router.get("/feedback")
@guarded(ADMIN)
async def list_feedback(caller: Caller, services: Services, after: PageCursor, limit: PageLimit = 30) -> FeedbackPageAnswer:
    """What this tenant's people said about answers, newest first."""
    page = await services.custody.feedback_page(caller.tenant_id, limit=limit, after=after)
    data = [
        FeedbackAnswer(
            user_id=given.user_id,
            conversation_id=given.conversation_id,
            message_id=given.message_id,
            model=given.model,
            rating=given.feedback.rating,
            reasons=list(given.feedback.reasons),
            comment=given.feedback.comment,
            at=rfc3339(given.at),
        )
        for given in page.feedback
    ]
    return FeedbackPageAnswer(data, page.next_cursor)


@router.get("/retention")
@guarded(ADMIN)
async def get_retention(caller: Caller, services: Services) -> RetentionAnswer:
    """How long this tenant keeps what nobody uses."""
    return RetentionAnswer(await services.custody.retention(caller.tenant_id))


@router.put("/retention")
@guarded(ADMIN)
async def put_retention(body: RetentionChange, caller: Caller, services: Services) -> RetentionAnswer:
    """Set it; conversations that are past it leave within a minute."""
    by = Owner(caller.tenant_id, caller.user_id)
    await services.custody.set_retention(by, body.days, now=services.clock.now())
    return RetentionAnswer(body.days)
