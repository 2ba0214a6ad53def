"""Reads one ``[[plans]]`` table."""

from __future__ import annotations

from collections.abc import Collection

from antiphon.app.toml_table import Table
from antiphon.core.limits import MOST_TOKENS
from antiphon.core.plans import DEFAULT_PLAN, MessageCap, Plan
from antiphon.core.tenancy import Band

_LONGEST_WINDOW_S = 366 * 86_400
_BANDS = {"low": Band.LOW, "standard": Band.STANDARD, "high": Band.HIGH}


def plan_of(table: Table, served: Collection[str]) -> Plan:
    """The plan that ``table`` describes; ``served`` are the names of all pools and models. Faults are remembered in the table."""
    default = Plan(name=DEFAULT_PLAN)
    plan = Plan(
        name=table.text("name", DEFAULT_PLAN),
        models=table.texts("models"),
        band=_BANDS[table.choice("priority", "standard", tuple(_BANDS))],
        tokens_per_minute=table.integer("tokens_per_minute", default.tokens_per_minute, at_least=1, at_most=MOST_TOKENS),
        requests_per_minute=table.integer("requests_per_minute", default.requests_per_minute, at_least=1, at_most=MOST_TOKENS),
        key_tokens_per_minute=table.integer("key_tokens_per_minute", 0, at_most=MOST_TOKENS),
        key_requests_per_minute=table.integer("key_requests_per_minute", 0, at_most=MOST_TOKENS),
        concurrency=table.integer("concurrency", default.concurrency, at_least=1, at_most=MOST_TOKENS),
        caps=tuple(_cap(entry, served) for entry in table.tables("caps")),
        max_output_tokens=table.integer("max_output_tokens", default.max_output_tokens, at_least=1, at_most=MOST_TOKENS),
        ttft_limit_ms=table.integer("ttft_limit_ms", default.ttft_limit_ms, at_least=1),
        downgrade=table.truth("downgrade", default.downgrade),
        on_abandon=table.choice("on_abandon", "finish", ("finish", "cancel")),
        reserved_tokens_per_s=table.integer("reserved_tokens_per_s", 0),
    )
    for model in plan.models:
        if model not in served:
            table.fault("models", f"no pool serves {model!r}")
    table.finish()
    return plan


def _cap(table: Table, served: Collection[str]) -> MessageCap:
    cap = MessageCap(
        model=table.text("model", ""),
        messages=table.integer("messages", 0, at_most=MOST_TOKENS),
        window_seconds=table.integer("window_seconds", 3600, at_least=1, at_most=_LONGEST_WINDOW_S),
    )
    if cap.model not in served:
        table.fault("model", f"no pool serves {cap.model!r}")
    if not table.has("messages"):
        table.fault("messages", "is missing")
    table.finish()
    return cap
