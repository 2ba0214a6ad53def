"""Plans: what a user may use, how much of it, and how they wait. One ``[[plans]]`` entry of the configuration each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from antiphon.core.tenancy import Band

DEFAULT_PLAN = "free"

OnAbandon = Literal["finish", "cancel"]


@dataclass(frozen=True, slots=True)
class MessageCap:
    """At most ``messages`` turns with ``model`` (a pool or a model) in any window of ``window_seconds``."""

    model: str
    messages: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Every bound holds for one user. ``models`` names pools or models, the first is the default; empty allows all.

    Queueing: ``band`` goes before all lower ones. ``ttft_limit_ms`` is how long its users wait for the first token: who is
    predicted to wait longer gets a smaller model where ``downgrade`` allows it, waits, or is refused. ``reserved_tokens_per_s``
    is the share of a pool that an organisation on this plan is given first, whatever the others want.
    Limits: ``tokens_per_minute``, ``requests_per_minute``, ``concurrency`` (answers being written at once), ``caps``;
    beside them ``key_tokens_per_minute`` and ``key_requests_per_minute`` for each API key, where they are not 0.
    ``on_abandon``: whether an answer that nobody reads any more is finished in the background or cancelled.
    """

    name: str
    models: tuple[str, ...] = ()
    band: Band = Band.STANDARD
    tokens_per_minute: int = 20_000
    requests_per_minute: int = 20
    concurrency: int = 2
    key_tokens_per_minute: int = 0
    key_requests_per_minute: int = 0
    caps: tuple[MessageCap, ...] = ()
    max_output_tokens: int = 1024
    ttft_limit_ms: int = 10_000
    downgrade: bool = True
    on_abandon: OnAbandon = "finish"
    reserved_tokens_per_s: int = 0

    def allows(self, pool: str, model: str) -> bool:
        """Whether its users may use the pool ``pool``, which serves ``model``."""
        return not self.models or pool in self.models or model in self.models

    def within(self, band: Band | None) -> Plan:
        """The plan as a key with a ``band`` of its own has it: never above the plan's."""
        return self if band is None or band >= self.band else replace(self, band=band)


OWNER_PLAN = Plan("owner", tokens_per_minute=10_000_000, requests_per_minute=6_000, concurrency=64)
"""Who runs the server for themselves is in nobody's way: the owner's plan where none is configured."""
