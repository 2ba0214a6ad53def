"""What a turn may ask, what the gateway is asked about it, and what becomes of the turn by its answer."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.errors import FieldFault, HighDemand, InvalidRequest, MessageTooLarge, NoCapacity
from antiphon.core.generation import TurnParams
from antiphon.core.plans import Plan
from antiphon.inference.admission import Admit, Decision, Downgrade, Queue, Shed
from antiphon.inference.ask import Ask
from antiphon.inference.fleet import ServedPool
from antiphon.stores.conversations.base import Owner

MESSAGE_BYTES = 256_000
"""The largest message, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a turn will need, in tokens; ``free_length``: nobody named the length of the answer."""

    prompt_tokens: int
    output_tokens: int
    free_length: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers: ``model`` of ``pool``, as ``requested`` or by a ``rule`` for a ``reason``. ``output_tokens``: the most, where
    that was lowered.
    """

    pool: str
    model: str
    requested: str
    rule: str = ""
    reason: str = ""
    output_tokens: int | None = None


def ask_for(owner: Owner, plan: Plan, size: Size, *, kind: str, conversation: str = "", smaller: ServedPool | None = None) -> Ask:
    """``smaller`` is the pool that the requested one falls back on; the plan says whether its users get it."""
    return Ask(
        tenant=owner.tenant_id,
        user=owner.user_id,
        prompt_tokens=size.prompt_tokens,
        output_tokens=size.output_tokens,
        band=plan.band,
        wait_limit_s=plan.ttft_limit_ms / 1000,
        free_length=size.free_length,
        downgrade=plan.downgrade and (smaller is None or plan.allows(smaller.name, smaller.model)),
        plan=plan.name,
        conversation=conversation,
        kind=kind,
        reserved_tokens_per_s=float(plan.reserved_tokens_per_s),
    )


def route_of(decision: Decision, pool: ServedPool) -> Route:
    """Raises ``HighDemand`` or ``NoCapacity`` where the gateway takes nothing.

    Two pools may serve one model; then the route names the pools, so that a downgrade can be seen.
    """
    match decision:
        case Shed(code, retry_after_ms):
            raise (HighDemand if code == "high_demand" else NoCapacity)(retry_after_ms=retry_after_ms)
        case Downgrade(name, model, reason, then):
            served, requested = (name, pool.name) if model == pool.model else (model, pool.model)
            return Route(name, served, requested, "downgrade", reason, then.output_tokens)
        case Admit(None) | Queue(_, _, None):
            return Route(pool.name, pool.model, pool.model)
        case Admit(cap) | Queue(_, _, cap):
            return Route(pool.name, pool.model, pool.model, "output_cap", "high_demand", cap)


def check_content(content: str | None) -> None:
    """Raises ``MessageTooLarge`` or ``InvalidRequest``; there is none where an answer is only asked for again."""
    if content is None:
        return
    if len(content.encode()) > MESSAGE_BYTES:
        raise MessageTooLarge
    if not content.strip():
        raise InvalidRequest([FieldFault("content", "A message needs some text.")])


def check_params(params: TurnParams, plan: Plan) -> None:
    """Raises ``InvalidRequest`` where the plan does not allow what was asked for."""
    cap = plan.max_output_tokens
    if params.max_tokens is not None and not 1 <= params.max_tokens <= cap:
        raise InvalidRequest([FieldFault("params.max_tokens", f"Takes 1 to {cap} on this plan, but got {params.max_tokens}.")])
