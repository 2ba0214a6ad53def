"""A person's decision on a case: cleared and trusted for a while, or slowed until somebody lifts it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from antiphon.core.abuse import Case, CaseState
from antiphon.core.tenancy import User
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.conversations.base import Owner

TRUST = timedelta(days=7)


async def review(cases: AbuseCases, user: User, by: Owner, *, throttled: bool, trust: timedelta = TRUST, now: datetime) -> Case:
    """Decide on ``user``, whether or not there was a case. Raises ``Conflict`` where it has changed at this very moment."""
    known = await cases.get(user.tenant_id, user.id)
    before = known or Case(user.tenant_id, user.id, CaseState.CLEAR, 0.0, (), now, version=0)
    decided = replace(
        before,
        state=CaseState.THROTTLED if throttled else CaseState.CLEAR,
        since=now,
        version=before.version + 1,
        reviewed_by=by.user_id,
        trusted_until=None if throttled else now + trust,
    )
    await cases.put(decided, by, "abuse.uphold" if throttled else "abuse.clear", now=now)
    return decided
