"""Accounts under suspicion: what is held against them, and an admin's word on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter

from antiphon.core.abuse import Case
from antiphon.core.clock import rfc3339
from antiphon.edge.access import ADMIN, Caller, GuardedRoute, Services, guarded
from antiphon.edge.paths import UserPath
from antiphon.edge.routes.users import managed
from antiphon.edge.schemas import CaseReview
from antiphon.governance.review import review
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1/admin/abuse", tags=["admin"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class SignalAnswer:
    name: str
    level: float


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """``state``: clear, flagged or throttled. ``score`` and ``signals`` are from when the server last changed it; ``reviewed_by`` is null
    where the server decided.
    """

    user_id: str
    state: str
    score: float
    signals: list[SignalAnswer]
    since: str
    reviewed_by: str | None
    trusted_until: str | None


@dataclass(frozen=True, slots=True)
class CasesAnswer:
    data: list[CaseAnswer]


@router.get("")
@guarded(ADMIN)
async def list_cases(caller: Caller, services: Services) -> CasesAnswer:
    """Every case of the tenant, cleared ones too, newest first."""
    return CasesAnswer([_answer(case) for case in await services.cases.of_tenant(caller.tenant_id)])


@router.put("/{user_id}")
@guarded(ADMIN)
async def decide_case(user_id: UserPath, body: CaseReview, caller: Caller, services: Services) -> CaseAnswer:
    """Clear an account, which the server then trusts for some days, or slow it until somebody clears it. Felt within seconds."""
    user = await managed(services, caller, user_id)
    by = Owner(caller.tenant_id, caller.user_id)
    trust = timedelta(days=body.trusted_days)
    decided = await review(services.cases, user, by, throttled=body.state == "throttled", trust=trust, now=services.clock.now())
    return _answer(decided)


def _answer(case: Case) -> CaseAnswer:
    return CaseAnswer(
        user_id=case.user_id,
        state=case.state.value,
        score=round(case.score, 3),
        signals=[SignalAnswer(signal.name, round(signal.level, 3)) for signal in case.signals],
        since=rfc3339(case.since),
        reviewed_by=case.reviewed_by,
        trusted_until=None if case.trusted_until is None else rfc3339(case.trusted_until),
    )
