"""Limits that tests of other things do not feel."""

from __future__ import annotations

from typing import Any

from antiphon.core.clock import Clock
from antiphon.orchestrator.allowances import Allowances
from antiphon.stores.limits.memory import MemoryLimiter

GENEROUS: dict[str, Any] = {"tokens_per_minute": 100_000_000, "requests_per_minute": 1_000_000, "concurrency": 1000}
"""Of a ``Plan``."""


def allowances(clock: Clock) -> Allowances:
    """Of one server, in its memory."""
    return Allowances(MemoryLimiter(clock), clock)
