"""Reads what is about money: ``[[prices]]``, ``[[budgets]]``, ``[[tiers]]``. Amounts are decimal strings, so that none is rounded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import cast

from antiphon.app.toml_table import Table
from antiphon.core.limits import MOST_TOKENS
from antiphon.core.money import Price, PriceList
from antiphon.core.terms import SpendLevel, TenantBudget

LISTS = ("prices", "budgets", "tiers")
MOST = Decimal(4_000_000)
"""The largest budget, so that whole nanos of it stay exact in a double."""
_HIGHEST_PRICE = Decimal(100_000)
"""Of a million tokens, or an hour: whatever an answer costs, a limiter can count it."""


@dataclass(frozen=True, slots=True)
class MoneyConfig:
    """Prices with their history, budgets of tenants, and rates that rise with what a tenant has spent."""

    prices: PriceList = field(default_factory=PriceList)
    budgets: tuple[TenantBudget, ...] = ()
    levels: tuple[SpendLevel, ...] = ()


def money_of(raw: Mapping[str, object], served: Collection[str], faults: list[tuple[str, str]]) -> MoneyConfig:
    """All three lists; ``served`` are the names of pools and models. Faults are added to ``faults``."""
    prices: dict[str, list[Price]] = {}
    for table in _tables(raw, "prices", faults):
        model, price = _price(table, served)
        prices.setdefault(model, []).append(price)
    budgets = tuple(_budget(table) for table in _tables(raw, "budgets", faults))
    levels = tuple(_level(table) for table in _tables(raw, "tiers", faults))
    return MoneyConfig(PriceList(prices), budgets, levels)


def _price(table: Table, served: Collection[str]) -> tuple[str, Price]:
    model = table.text("model", "")
    if model not in served:
        table.fault("model", f"no pool serves {model!r}")
    price = Price(
        since=_day(table, "since"),
        input=_price_of(table, "input"),
        cached_input=_price_of(table, "cached_input"),
        output=_price_of(table, "output"),
        accelerator_hour=_price_of(table, "accelerator_hour"),
    )
    if (price.input is None) != (price.output is None):
        table.fault("output" if price.output is None else "input", "input and output are priced together")
    table.finish()
    return model, price


def _budget(table: Table) -> TenantBudget:
    tenant = table.text("tenant", "")
    if not tenant:
        table.fault("tenant", "must name a tenant")
    monthly = _amount(table, "monthly")
    if monthly is None or monthly > MOST:
        table.fault("monthly", f"must be an amount up to {MOST}")
    shares = table.texts("alerts") if table.has("alerts") else ("0.5", "0.8", "1")
    alerts = tuple(share for text in shares if (share := _decimal(text)) is not None and 0 < share <= 1)
    if len(alerts) != len(shares):
        table.fault("alerts", 'must be shares of the budget, like "0.8"')
    table.finish()
    return TenantBudget(tenant, monthly or Decimal(0), alerts)


def _level(table: Table) -> SpendLevel:
    level = SpendLevel(
        spend=_amount(table, "spend") or Decimal(0),
        tokens_per_minute=table.integer("tokens_per_minute", 0, at_most=MOST_TOKENS),
        requests_per_minute=table.integer("requests_per_minute", 0, at_most=MOST_TOKENS),
    )
    table.finish()
    return level


def _price_of(table: Table, key: str) -> Decimal | None:
    amount = _amount(table, key)
    if amount is not None and amount > _HIGHEST_PRICE:
        table.fault(key, f"must be at most {_HIGHEST_PRICE}")
        return None
    return amount


def _amount(table: Table, key: str) -> Decimal | None:
    """A decimal string that is not negative; ``None`` where there is none."""
    text = table.text(key, "")
    if not text:
        return None
    amount = _decimal(text)
    if amount is None:
        table.fault(key, 'must be a decimal string that is not negative, like "0.40"')
    return amount


def _decimal(text: str) -> Decimal | None:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def _day(table: Table, key: str) -> datetime:
    text = table.text(key, "2000-01-01")
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        table.fault(key, 'must be a day, like "2026-01-31"')
        day = datetime(2000, 1, 1, tzinfo=UTC)
    return day if day.tzinfo is not None else day.replace(tzinfo=UTC)


def _tables(raw: Mapping[str, object], section: str, faults: list[tuple[str, str]]) -> list[Table]:
    listed = raw.get(section, [])
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in cast("list[object]", listed)):
        faults.append((section, f"must be a list of tables, each under [[{section}]]"))
        return []
    entries = cast("list[Mapping[str, object]]", listed)
    return [Table(f"{section}[{index}]", entry, faults) for index, entry in enumerate(entries)]
