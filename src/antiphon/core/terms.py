"""What holds between the server's owner and each tenant: budgets, and rates that grow with what a tenant has spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class TenantBudget:
    """At most ``monthly`` in a calendar month; each share in ``alerts`` is told once a month when it is reached."""

    tenant: str
    monthly: Decimal
    alerts: tuple[Decimal, ...] = (Decimal("0.5"), Decimal("0.8"), Decimal(1))


@dataclass(frozen=True, slots=True)
class SpendLevel:
    """Rates of a tenant that has spent at least ``spend`` in all; 0 is no bound."""

    spend: Decimal
    tokens_per_minute: int
    requests_per_minute: int


def level_at(levels: Sequence[SpendLevel], spent: Decimal) -> SpendLevel | None:
    """The highest level that ``spent`` reaches; ``None`` where it reaches none."""
    return max((level for level in levels if level.spend <= spent), key=lambda level: level.spend, default=None)
