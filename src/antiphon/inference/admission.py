"""Whether a turn is taken: now, later, by a smaller model, or not. Pure.

The degrade ladder, from the top: what fits starts; in high demand an answer of no particular length is kept shorter; where
the wait would be longer than the plan allows, a smaller model answers, if plan and pool have one that is quicker; what waits
within the plan's limit waits; everything else is refused at once, with the time to come back. Whoever was let in is never
turned away afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from antiphon.inference.ask import Ask

CAPPED_TOKENS = 256
"""In high demand an answer of no particular length has at most so many tokens; *Continue* goes on from there."""
_LONGEST_OPENING_S = 60.0

DowngradeReason = Literal["high_demand", "unavailable"]


@dataclass(frozen=True, slots=True)
class Admit:
    """It would start at once, with at most ``output_tokens`` where that is not ``None``."""

    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """It would wait at ``position`` (from 1), for ``eta_ms`` until its first token."""

    position: int
    eta_ms: int | None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Downgrade:
    """The smaller ``pool`` would answer instead, and there ``then`` would happen."""

    pool: str
    model: str
    reason: DowngradeReason
    then: Admit | Queue


@dataclass(frozen=True, slots=True)
class Shed:
    """It would not be served: the wait would be too long, or there is nothing to wait for."""

    code: Literal["high_demand", "no_capacity"]
    retry_after_ms: int


Decision = Admit | Queue | Downgrade | Shed


@dataclass(frozen=True, slots=True)
class Look:
    """What one pool could do for a newcomer. Seconds until the first token are ``wait_s``, of which the prompt's own
    computing is ``prefill_s``; without that, and without a model's load, nearly all would wait ``queued_at_most_s`` at most.
    """

    pool: str
    model: str
    available: bool
    """A replica is ready, or was and is being restarted, or its model is loaded on demand."""
    opening_s: float
    """Expected time until a replica is ready, when none is."""
    starts_now: bool
    full: bool
    high: bool
    position: int
    wait_s: float
    prefill_s: float
    queued_at_most_s: float
    holds: bool = True
    """Prompt and answer can fit at all."""
    on_demand: bool = False
    """Its model is not in memory: ``opening_s`` of the wait is its load."""


def within_limit(ask: Ask, look: Look) -> bool:
    """Whether the pool may take it: it starts at once, or its wait is within the plan's limit.

    A prompt that alone takes most of the limit to compute is not refused for its own length: of the limit's second half
    everything may be waiting. Nor is anybody refused because a model has to be loaded: else none ever would be.
    """
    if not look.available or look.full or not look.holds:
        return False
    if look.starts_now:
        return True
    return look.queued_at_most_s <= max(ask.wait_limit_s - look.prefill_s, ask.wait_limit_s / 2)


def decide(ask: Ask, here: Look, smaller: Look | None, *, sticky: bool, retry_after_s: float = 1.0) -> Decision:
    """The decision for a newcomer. ``smaller`` is the pool to fall back on, where there is one and the plan allows it;
    ``sticky``: the conversation was given it a while ago. ``retry_after_s`` is told where it is refused.
    """
    taken = within_limit(ask, here)
    if smaller is not None and (sticky or not taken) and _helps(ask, here, smaller):
        reason: DowngradeReason = "high_demand" if here.available else "unavailable"
        return Downgrade(smaller.pool, smaller.model, reason, _let_in(ask, smaller))
    if taken:
        return _let_in(ask, here)
    if here.available:
        return Shed("high_demand", round(1000 * retry_after_s))
    return Shed("no_capacity", round(1000 * min(max(here.opening_s, 1.0), _LONGEST_OPENING_S)))


def _helps(ask: Ask, here: Look, smaller: Look) -> bool:
    """Whether the smaller model answers sooner; one that has to be loaded only where the load too is within the limit, or there is
    no other. Loading it may be what takes the room of the one that was asked for.
    """
    if smaller.on_demand and here.available and (within_limit(ask, here) or smaller.wait_s > ask.wait_limit_s):
        return False
    return within_limit(ask, smaller)


def output_cap(ask: Ask, *, high: bool) -> int | None:
    """The most an answer may have in high demand; ``None`` where its length stays as it is."""
    if high and ask.free_length and ask.downgrade and ask.output_tokens > CAPPED_TOKENS:
        return CAPPED_TOKENS
    return None


def capped(ask: Ask, decision: Admit | Queue) -> Ask:
    """The request as it was let in."""
    return ask if decision.output_tokens is None else replace(ask, output_tokens=decision.output_tokens)


def _let_in(ask: Ask, look: Look) -> Admit | Queue:
    cap = output_cap(ask, high=look.high)
    return Admit(cap) if look.starts_now else Queue(look.position, round(1000 * look.wait_s), cap)
