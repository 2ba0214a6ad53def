"""``antiphon cost``: what answers cost, by model and user, and what each lever on it is worth."""

from __future__ import annotations

import argparse
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, config_of, print_rows
from antiphon.core.clock import rfc3339
from antiphon.core.usage import money

if TYPE_CHECKING:
    from antiphon.app.costs import CostReport
    from antiphon.cli.arguments import Commands
    from antiphon.governance.cost import Costs, Lever

_DIGITS = Decimal(1).scaleb(-9)


def add(commands: Commands) -> None:
    parser = commands.add_parser("cost", help="what answers cost, and what would make them cheaper", allow_abbrev=False)
    add_config_flags(parser)
    add_json_flag(parser)
    parser.add_argument("--days", metavar="N", type=_days, default=30, help="how many days, today included (30)")
    parser.add_argument(
        "--measured", metavar="FILE", type=Path, action="append", default=[], help="what make bench printed; levers are taken from it"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.costs import cost_report, measurement_of
    from antiphon.app.system import SystemClock

    measured = [measurement_of(file) for file in arguments.measured]
    report = asyncio.run(cost_report(config_of(arguments), now=SystemClock().now(), days=arguments.days, measured=measured))
    if arguments.json:
        print(json.dumps(_as_json(report), ensure_ascii=False, indent=2))
        return 0
    print(f"{report.since:%Y-%m-%d} to {report.until:%Y-%m-%d}, exclusive; - is unknown\n")
    print_rows([_row(report.whole)], as_json=False)
    for rows in (report.models, report.users):
        print()
        print_rows([_row(row) for row in rows], as_json=False)
    print()
    print_rows([_lever(lever) for lever in report.levers], as_json=False)
    return 0


def _days(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= 3660):
        raise argparse.ArgumentTypeError("must be 1 to 3660")
    return int(text)


def _as_json(report: CostReport) -> dict[str, object]:
    return {
        "since": rfc3339(report.since),
        "until": rfc3339(report.until),
        "total": _row(report.whole),
        "models": [_row(row) for row in report.models],
        "users": [_row(row) for row in report.users],
        "levers": [_lever(lever) for lever in report.levers],
    }


def _row(costs: Costs) -> dict[str, str | int | None]:
    rate = costs.output_tokens_per_accelerator_second
    return {
        **costs.group,
        "messages": costs.messages,
        "unpriced": costs.unpriced,
        "tokens": costs.tokens,
        "cost": money(costs.cost),
        "cost_per_message": _rounded(costs.per_message),
        "cost_per_1000_tokens": _rounded(costs.per_1000_tokens),
        "accelerator_cost": money(costs.accelerator_cost),
        "output_tokens_per_accelerator_second": None if rate is None else f"{rate:.1f}",
    }


def _lever(lever: Lever) -> dict[str, str | int | None]:
    return {
        "lever": lever.name,
        "saves": money(lever.saves),
        "factor": None if lever.factor is None else f"{lever.factor:.2f}",
        "source": lever.source,
        "why": lever.why,
    }


def _rounded(amount: Decimal | None) -> str | None:
    return None if amount is None else money(amount.quantize(_DIGITS).normalize() + 0)
