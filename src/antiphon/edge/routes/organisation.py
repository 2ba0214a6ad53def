"""What the operator sees of their organisation beside its people: the plans there are, and everybody's keys."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from antiphon.core.clock import rfc3339
from antiphon.core.plans import Plan
from antiphon.edge.access import ADMIN, Caller, GuardedRoute, Services, guarded

router = APIRouter(prefix="/v1/admin", tags=["admin"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class CapAnswer:
    model: str
    messages: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """As in the configuration; no ``models`` are all of them."""

    name: str
    models: list[str]
    priority: str
    tokens_per_minute: int
    requests_per_minute: int
    concurrency: int
    caps: list[CapAnswer]
    max_output_tokens: int
    ttft_limit_ms: int
    downgrade: bool
    on_abandon: str
    reserved_tokens_per_s: int


@dataclass(frozen=True, slots=True)
class PlansAnswer:
    data: list[PlanAnswer]


@dataclass(frozen=True, slots=True)
class OwnedKeyAnswer:
    """A key and whose it is; never the key itself."""

    id: str
    user_id: str
    name: str
    scopes: list[str]
    last4: str
    created_at: str


@dataclass(frozen=True, slots=True)
class OwnedKeysAnswer:
    data: list[OwnedKeyAnswer]


@router.get("/plans")
@guarded(ADMIN)
async def list_plans(services: Services) -> PlansAnswer:
    """Every plan of this server, by name; the owner's may be one of the others."""
    plans = {plan.name: plan for plan in services.plans.values()}
    return PlansAnswer([_plan_answer(plans[name]) for name in sorted(plans)])


@router.get("/keys")
@guarded(ADMIN)
async def list_keys(caller: Caller, services: Services) -> OwnedKeysAnswer:
    """All keys of the tenant that work, oldest first; ``DELETE /v1/keys/{id}`` ends one."""
    keys = await services.accounts.keys(caller.tenant_id, None)
    return OwnedKeysAnswer(
        [
            OwnedKeyAnswer(key.id, key.user_id, key.name, sorted(key.scopes), key.last4, rfc3339(key.created_at))
            for key in keys
            if key.revoked_at is None
        ]
    )


def _plan_answer(plan: Plan) -> PlanAnswer:
    return PlanAnswer(
        name=plan.name,
        models=list(plan.models),
        priority=plan.band.name.lower(),
        tokens_per_minute=plan.tokens_per_minute,
        requests_per_minute=plan.requests_per_minute,
        concurrency=plan.concurrency,
        caps=[CapAnswer(cap.model, cap.messages, cap.window_seconds) for cap in plan.caps],
        max_output_tokens=plan.max_output_tokens,
        ttft_limit_ms=plan.ttft_limit_ms,
        downgrade=plan.downgrade,
        on_abandon=plan.on_abandon,
        reserved_tokens_per_s=plan.reserved_tokens_per_s,
    )
