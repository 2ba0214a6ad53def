"""The models callers may name, in OpenAI's list with our additions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter

from antiphon.core.money import Price
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Band
from antiphon.edge.access import CHAT, Caller, GuardedRoute, Services, guarded
from antiphon.inference.fleet import PoolStatus
from antiphon.inference.residency import Presence

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class LoadingAnswer:
    """``usual_ms`` is how long it took the last time; null where it never did here."""

    elapsed_ms: int
    usual_ms: int | None


@dataclass(frozen=True, slots=True)
class PriceAnswer:
    """Of a million tokens, now; null where it is unknown."""

    input: str
    cached_input: str
    output: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """``id`` is the pool's name; ``model`` what it serves. Both may be asked for. One that is not ``loaded`` is as soon as it is."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    model: str
    status: Literal["ready", "loading", "down"]
    load: Literal["normal", "high", "full"]
    wait_ms: int
    context_tokens: int
    allowed: bool
    price: PriceAnswer | None
    loaded: bool
    loading: LoadingAnswer | None


@dataclass(frozen=True, slots=True)
class ModelsAnswer:
    object: Literal["list"]
    data: list[ModelAnswer]


@router.get("")
@guarded(CHAT)
async def list_models(caller: Caller, services: Services) -> ModelsAnswer:
    """Every pool, with how busy it is and whether the caller's plan has it."""
    plan = services.plans.get(caller.plan)
    band = Band.STANDARD if plan is None else plan.within(caller.band).band
    prices, now = services.allowances.prices, services.clock.now()
    statuses = services.gateway.statuses(band)
    return ModelsAnswer("list", [_model_answer(status, plan, prices.at(status.name, status.model, now)) for status in statuses])


def _model_answer(status: PoolStatus, plan: Plan | None, price: Price | None) -> ModelAnswer:
    return ModelAnswer(
        id=status.name,
        object="model",
        created=0,
        owned_by="antiphon",
        model=status.model,
        status=status.status,
        load=status.load,
        wait_ms=status.wait_ms,
        context_tokens=status.context_tokens,
        allowed=plan is not None and plan.allows(status.name, status.model),
        price=None if price is None else _price_answer(price),
        loaded=status.presence in {Presence.RESIDENT, Presence.LEAVING},
        loading=None if status.loading is None else LoadingAnswer(status.loading.elapsed_ms, status.loading.usual_ms),
    )


def _price_answer(price: Price) -> PriceAnswer | None:
    if price.input is None or price.output is None:
        return None
    cached = price.input if price.cached_input is None else price.cached_input
    return PriceAnswer(*(format(amount, "f") for amount in (price.input, cached, price.output)))
