"""Money: exact decimals, in whole nanos where it is added up. A price that nobody has named is unknown, never nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

from antiphon.core.generation import Usage

NANOS = 1_000_000_000
_PER_MILLION = Decimal(1_000_000)
_MS_PER_HOUR = Decimal(3_600_000)
_NANO = Decimal(1).scaleb(-9)


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from ``since`` on: per million tokens, and what an hour of its accelerators costs whoever runs it.

    Each part may be unknown. Tokens are charged where ``input`` and ``output`` are known; cached prompt tokens cost ``cached_input``, or as
    much as others where that is unknown.
    """

    since: datetime
    input: Decimal | None = None
    cached_input: Decimal | None = None
    output: Decimal | None = None
    accelerator_hour: Decimal | None = None

    def of_tokens(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> Decimal | None:
        """What so many tokens cost, of which ``cached_tokens`` are among ``prompt_tokens``; to the nano. ``None``: unknown."""
        if self.input is None or self.output is None:
            return None
        cached = self.input if self.cached_input is None else self.cached_input
        whole = self.input * (prompt_tokens - cached_tokens) + cached * cached_tokens + self.output * output_tokens
        return _rounded(whole / _PER_MILLION)

    def of_time(self, accelerator_ms: int) -> Decimal | None:
        """What so much of the accelerators' time costs whoever runs them."""
        return None if self.accelerator_hour is None else _rounded(self.accelerator_hour * accelerator_ms / _MS_PER_HOUR)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by the name of a pool or a model, each with its history. The pool's own goes before its model's."""

    prices: Mapping[str, Sequence[Price]] = field(default_factory=dict[str, Sequence[Price]])

    def at(self, pool: str, model: str, moment: datetime) -> Price | None:
        """The price in force at ``moment``; ``None`` where there is none yet."""
        listed = self.prices.get(pool) or self.prices.get(model) or ()
        return max((price for price in listed if price.since <= moment), key=lambda price: price.since, default=None)

    def cost(self, pool: str, model: str, usage: Usage, moment: datetime) -> Decimal | None:
        """What a generation that ended at ``moment`` costs: by its tokens, else by its accelerators' time, else unknown."""
        price = self.at(pool, model, moment)
        if price is None:
            return None
        by_tokens = price.of_tokens(usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
        return price.of_time(usage.accelerator_ms) if by_tokens is None else by_tokens


def nanos_of(amount: Decimal | None) -> int:
    """An amount in whole nanos; what is unknown adds nothing."""
    return 0 if amount is None else int((amount * NANOS).to_integral_value(ROUND_HALF_EVEN))


def of_nanos(nanos: int) -> Decimal:
    """The inverse of ``nanos_of``, without trailing zeros."""
    return (Decimal(nanos) / NANOS).normalize() + 0


def month_of(moment: datetime) -> tuple[str, datetime]:
    """The calendar month in UTC, as ``2026-01``, and when it ends."""
    moment = moment.astimezone(UTC)
    year, month = moment.year + moment.month // 12, moment.month % 12 + 1
    return f"{moment.year:04d}-{moment.month:02d}", datetime(year, month, 1, tzinfo=UTC)


def _rounded(amount: Decimal) -> Decimal:
    return amount.quantize(_NANO, ROUND_HALF_EVEN).normalize() + 0
