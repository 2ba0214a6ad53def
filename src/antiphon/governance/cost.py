"""What answers cost, and what each lever on it is worth: figures of the ledger, of prices and of measurements, each with its source. Pure.

What is not known stays unknown: an answer without a price adds to no sum of money, and a lever that nobody measured has no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from antiphon.core.money import PriceList, of_nanos
from antiphon.core.usage import UsageRecord
from antiphon.stores.usage.base import Total

_THOUSAND = Decimal(1000)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A benchmark's result: its figures by name, and which run it was."""

    name: str
    figures: Mapping[str, float]
    source: str


@dataclass(frozen=True, slots=True)
class Costs:
    """``cost`` is what the priced answers cost together; ``None`` where none had a price. ``accelerator_cost``: what the time costs whoever
    runs the accelerators. ``per_message`` and ``per_1000_tokens`` are of the priced answers."""

    group: Mapping[str, str]
    messages: int
    unpriced: int
    tokens: int
    cost: Decimal | None
    per_message: Decimal | None
    per_1000_tokens: Decimal | None
    accelerator_cost: Decimal | None
    output_tokens_per_accelerator_second: float | None


@dataclass(frozen=True, slots=True)
class Lever:
    """``saves`` is money, ``factor`` how many times as many tokens an accelerator-second gives; ``None``: unknown, and ``why`` says what is
    missing. ``source`` names what the figure comes from."""

    name: str
    saves: Decimal | None = None
    factor: float | None = None
    source: str | None = None
    why: str = ""


def costs_of(total: Total, accelerator_cost: Decimal | None = None) -> Costs:
    """One line. Tokens of unpriced answers cannot be told from others in a total, so with any of them costs per 1,000 are unknown."""
    priced = total.generations - total.unpriced
    tokens = total.prompt_tokens + total.output_tokens
    cost = of_nanos(total.cost_nanos) if priced else None
    whole = cost is not None and total.unpriced == 0
    return Costs(
        group={str(name): value for name, value in total.group.items()},
        messages=total.generations,
        unpriced=total.unpriced,
        tokens=tokens,
        cost=cost,
        per_message=None if cost is None else cost / priced,
        per_1000_tokens=cost * _THOUSAND / tokens if whole and cost is not None and tokens else None,
        accelerator_cost=accelerator_cost,
        output_tokens_per_accelerator_second=total.output_tokens_per_accelerator_second,
    )


def accelerator_cost(by_model: Sequence[Total], prices: PriceList, moment: datetime) -> Decimal | None:
    """What the accelerators' time of ``by_model`` (grouped by pool and model) costs now; ``None`` where an hour has no price."""
    whole = Decimal(0)
    for total in by_model:
        price = prices.at(total.group["pool"], total.group["model"], moment)
        cost = None if price is None else price.of_time(total.accelerator_ms)
        if cost is None:
            return None
        whole += cost
    return whole if by_model else None


def levers(
    by_model: Sequence[Total], newest: Sequence[UsageRecord], prices: PriceList, moment: datetime, measured: Sequence[Measurement]
) -> tuple[Lever, ...]:
    """``newest`` are answers whose routes and ends are looked at one by one."""
    return (
        _batching(measured),
        _prefix_hits(by_model, prices, moment),
        _measured("quantised weights", "quantised_weights_tok_s_ratio", measured),
        _measured("quantised cache", "quantised_cache_tok_s_ratio", measured),
        _routing(newest, prices),
        _output_caps(newest),
    )


def _batching(measured: Sequence[Measurement]) -> Lever:
    for one in measured:
        alone, eight = one.figures.get("output_tok_s_1"), one.figures.get("output_tok_s_8")
        if alone and eight:
            return Lever("batching", factor=eight / alone, source=one.source, why="eight answers at once beside one alone")
    return Lever("batching", why="no measurement with output_tok_s_1 and output_tok_s_8 was given")


def _measured(name: str, key: str, measured: Sequence[Measurement]) -> Lever:
    for one in measured:
        if key in one.figures:
            held = one.figures.get(key.replace("_tok_s_", "_tokens_held_"))
            why = key if held is None else f"{key}; the same memory holds {held:g} times as many tokens"
            return Lever(name, factor=one.figures[key], source=one.source, why=why)
    return Lever(name, why=f"no measurement with {key} was given")


def _prefix_hits(by_model: Sequence[Total], prices: PriceList, moment: datetime) -> Lever:
    """What the cached prompt tokens would have cost more as others."""
    saved, cached = Decimal(0), 0
    for total in by_model:
        price = prices.at(total.group["pool"], total.group["model"], moment)
        if price is None or price.input is None or price.output is None:
            return Lever("prefix hits", why=f"no price per token for {total.group['model']}")
        whole, less = price.of_tokens(total.cached_tokens, 0, 0), price.of_tokens(total.cached_tokens, total.cached_tokens, 0)
        saved += (whole or Decimal(0)) - (less or Decimal(0))
        cached += total.cached_tokens
    return Lever("prefix hits", saves=saved, source=f"ledger: {cached} cached prompt tokens, at today's prices")


def _routing(newest: Sequence[UsageRecord], prices: PriceList) -> Lever:
    """What answers of another model than was asked for would have cost more with that one."""
    saved, routed = Decimal(0), 0
    for one in newest:
        if one.requested_model in {one.model, one.pool}:
            continue
        asked = prices.cost(one.requested_model, one.requested_model, one.usage, one.finished_at)
        if asked is None or one.usage.cost is None:
            return Lever("routing to a smaller model", why=f"no price for {one.model if one.usage.cost is None else one.requested_model}")
        saved += asked - one.usage.cost
        routed += 1
    source = f"ledger: {routed} of the newest {len(newest)} answers were served by another model than was asked for"
    return Lever("routing to a smaller model", saves=saved, source=source)


def _output_caps(newest: Sequence[UsageRecord]) -> Lever:
    cut = sum(one.finish_reason == "length" for one in newest)
    why = f"how long they would have become is unknown ({cut} of the newest {len(newest)} answers ended at their cap)"
    return Lever("output caps", saves=None if cut else Decimal(0), source=f"ledger: newest {len(newest)} answers", why=why if cut else "")
