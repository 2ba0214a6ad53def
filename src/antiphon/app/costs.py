"""What answers of this installation cost, from its ledger, its prices, and the measurements that are named."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

from antiphon.app.config import Config
from antiphon.app.wiring import open_stores
from antiphon.core.errors import FieldFault, InvalidRequest
from antiphon.core.usage import UsageRecord
from antiphon.governance.cost import Costs, Lever, Measurement, accelerator_cost, costs_of, levers
from antiphon.stores.usage.base import TotalsQuestion

_NEWEST = 10_000


@dataclass(frozen=True, slots=True)
class CostReport:
    """From the day ``since`` to before the day ``until``."""

    since: datetime
    until: datetime
    whole: Costs
    models: tuple[Costs, ...]
    users: tuple[Costs, ...]
    levers: tuple[Lever, ...]


async def cost_report(config: Config, *, now: datetime, days: int, measured: Sequence[Measurement]) -> CostReport:
    """The last ``days`` days, today included. Raises ``StoreUnavailable``."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since, until = today - timedelta(days=days - 1), today + timedelta(days=1)
    prices = config.money.prices
    async with open_stores(config) as stores:
        (whole,) = await stores.ledger.totals(TotalsQuestion(since, until))
        models = await stores.ledger.totals(TotalsQuestion(since, until, ("pool", "model")))
        users = await stores.ledger.totals(TotalsQuestion(since, until, ("user", "model")))
        newest: list[UsageRecord] = []
        for tenant in await stores.accounts.tenants():
            newest += await stores.ledger.records(tenant.id, since=since, limit=_NEWEST - len(newest))
    return CostReport(
        since,
        until,
        costs_of(whole, accelerator_cost(models, prices, now)),
        tuple(costs_of(total, accelerator_cost([total], prices, now)) for total in models),
        tuple(costs_of(total) for total in users),
        levers(models, newest, prices, now, measured),
    )


def measurement_of(file: Path) -> Measurement:
    """The result that ``make bench`` printed last into ``file``, its figures above zero. Blocking.

    Raises ``InvalidRequest`` for anything else, ``OSError``.
    """
    try:
        lines = [line for line in file.read_text("utf-8").splitlines() if line.strip()]
        found = cast("dict[str, object]", json.loads(lines[-1]))
        figures = {**cast("dict[str, object]", found["results"]), **cast("dict[str, object]", found["ratios"])}
        numbers = {name: float(value) for name, value in figures.items() if isinstance(value, int | float) and 0 < value < math.inf}
        return Measurement(str(found["name"]), numbers, f"{found['name']}, commit {found['commit']}, {found['machine']}")
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as fault:
        raise InvalidRequest([FieldFault(str(file), "is not what a benchmark prints")], f"{file} holds no benchmark's result.") from fault
