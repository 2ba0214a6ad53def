"""What a caller may still use, and what was used: by them, and for an operator by everybody in the tenant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Query

from antiphon.core.allowance import Customer, Serving
from antiphon.core.clock import rfc3339
from antiphon.core.errors import FieldFault, Forbidden, InvalidRequest
from antiphon.core.limits import Budget, Cap, Concurrency, Rate, Standing
from antiphon.core.money import of_nanos
from antiphon.core.usage import money
from antiphon.edge.access import ADMIN, USAGE, Caller, GuardedRoute, Services, guarded
from antiphon.stores.usage.base import GROUPINGS, Grouping, Total, TotalsQuestion

router = APIRouter(prefix="/v1", tags=["usage"], route_class=GuardedRoute)

_DAY = timedelta(days=1)
_A_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
Amount = int | str


@dataclass(frozen=True, slots=True)
class LimitAnswer:
    """Amounts are whole numbers, a budget's decimal strings. ``model`` is there for a cap. ``resets_at``: when all that is used now has
    come back; for a cap, when its oldest message leaves the window; null for what nobody can tell.
    """

    name: str
    model: str | None
    limit: Amount
    used: Amount
    remaining: Amount
    resets_at: str | None


@dataclass(frozen=True, slots=True)
class SumAnswer:
    """``cost`` is null where no answer had a price; ``unpriced`` answers are not in it."""

    messages: int
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    accelerator_ms: int
    cost: str | None
    unpriced: int


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """``throttled``: the account has less than its plan for now."""

    plan: str
    throttled: bool
    limits: list[LimitAnswer]
    today: SumAnswer
    month: SumAnswer


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    group: dict[str, str]
    usage: SumAnswer
    output_tokens_per_accelerator_second: float | None


@dataclass(frozen=True, slots=True)
class TotalsAnswer:
    since: str
    until: str
    data: list[GroupAnswer]


@router.get("/usage")
@guarded(USAGE)
async def get_usage(caller: Caller, services: Services) -> UsageAnswer:
    """Where the caller stands with each limit, and what they used today and this month (UTC)."""
    plan = services.plans.get(caller.plan)
    if plan is None:
        raise Forbidden("The plan of this account is not configured on this server.")
    customer = Customer.of(caller, plan)
    pools = tuple(Serving(pool.name, pool.model) for pool in services.gateway.statuses() if plan.allows(pool.name, pool.model))
    standings = await services.allowances.standings(customer, pools or (Serving("", ""),))
    now = services.clock.now()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    mine = TotalsQuestion(today, today + _DAY, (), caller.tenant_id, caller.user_id)
    (day,) = await services.ledger.totals(mine)
    (month,) = await services.ledger.totals(TotalsQuestion(today.replace(day=1), today + _DAY, (), caller.tenant_id, caller.user_id))
    throttled = services.allowances.terms(caller.tenant_id, caller.user_id).throttle > 1
    return UsageAnswer(plan.name, throttled, [_limit(standing, now) for standing in standings], _sum(day), _sum(month))


@router.get("/admin/usage")
@guarded(ADMIN)
async def get_totals(
    caller: Caller,
    services: Services,
    since: str | None = None,
    until: str | None = None,
    group_by: Annotated[str, Query(max_length=100)] = "",
) -> TotalsAnswer:
    """What the tenant used from the day ``since`` to before the day ``until``; this month where they are absent.

    ``group_by`` names one or more of user, key, pool, model, plan, day, with commas between them.
    """
    today = services.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    first = _day("since", since) or today.replace(day=1)
    last = _day("until", until) or today + _DAY
    if first > last:
        raise InvalidRequest([FieldFault("since", "Must not be after until.")])
    question = TotalsQuestion(first, last, _groups(group_by), caller.tenant_id)
    totals = await services.ledger.totals(question)
    data = [
        GroupAnswer({str(name): value for name, value in total.group.items()}, _sum(total), total.output_tokens_per_accelerator_second)
        for total in totals
    ]
    return TotalsAnswer(rfc3339(first), rfc3339(last), data)


def _limit(standing: Standing, now: datetime) -> LimitAnswer:
    limit = standing.limit
    resets_at = rfc3339(now + timedelta(milliseconds=standing.resets_in_ms))
    match limit:
        case Rate():
            return LimitAnswer(_named(limit.subject, f"{limit.measure}_per_minute"), None, *_whole(standing), resets_at)
        case Concurrency():
            return LimitAnswer(_named(limit.subject, "concurrency"), None, *_whole(standing), None)
        case Cap():
            return LimitAnswer(_named(limit.subject, "messages"), limit.model, *_whole(standing), resets_at if standing.used else None)
        case Budget():
            most, used, remaining = (format(of_nanos(amount), "f") for amount in _whole(standing))
            return LimitAnswer(_named(limit.subject, "budget"), None, most, used, remaining, resets_at)


def _named(subject: str, name: str) -> str:
    level = subject.partition(":")[0]
    return name if level == "user" else f"{level}_{name}"


def _whole(standing: Standing) -> tuple[int, int, int]:
    return standing.most, standing.used, standing.remaining


def _sum(total: Total) -> SumAnswer:
    priced = total.generations == 0 or total.unpriced < total.generations
    return SumAnswer(
        messages=total.generations,
        tokens=total.prompt_tokens + total.output_tokens,
        prompt_tokens=total.prompt_tokens,
        cached_tokens=total.cached_tokens,
        output_tokens=total.output_tokens,
        accelerator_ms=total.accelerator_ms,
        cost=money(of_nanos(total.cost_nanos)) if priced else None,
        unpriced=total.unpriced,
    )


def _groups(text: str) -> tuple[Grouping, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if any(name not in GROUPINGS for name in names):
        raise InvalidRequest([FieldFault("group_by", f"Name some of {', '.join(GROUPINGS)}.")])
    return cast("tuple[Grouping, ...]", names)


def _day(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        if not _A_DAY.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidRequest([FieldFault(name, "Send a day, like 2026-01-31.")]) from None
