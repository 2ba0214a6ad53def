"""The ports of usage: the outbox that finalised generations fill, a route that carries it, and the ledger that adds it up.

Records are carried at least once and kept once: the ledger knows them by their generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from antiphon.core.ids import TenantId, UserId
from antiphon.core.usage import UsageRecord

Grouping = Literal["tenant", "user", "key", "pool", "model", "plan", "day"]
GROUPINGS: tuple[Grouping, ...] = ("tenant", "user", "key", "pool", "model", "plan", "day")


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A record that waits. ``attempts`` counts how often its route refused it alone, as nobody can read it."""

    number: int
    tenant_id: TenantId
    payload: str
    attempts: int


class Outbox(Protocol):
    """Every method may raise ``StoreUnavailable`` or ``DiskFull``."""

    async def unsent(self, *, limit: int) -> tuple[OutboxEntry, ...]:
        """The oldest that wait, across tenants; what was refused before comes after what was not, and in the end not at all."""
        ...

    async def mark_sent(self, numbers: Sequence[int], *, now: datetime) -> None: ...

    async def mark_refused(self, numbers: Sequence[int]) -> None: ...

    async def drop_sent(self, *, before: datetime, limit: int) -> int:
        """Forget at most ``limit`` entries sent before that moment; returns how many."""
        ...

    async def waiting(self) -> int:
        """How many entries wait, refused ones included."""
        ...


class Route(Protocol):
    """Carries entries to a ledger."""

    async def send(self, entries: Sequence[OutboxEntry]) -> frozenset[int]:
        """Returns the numbers of those that have arrived for good; the others can never be read by anybody.

        Raises ``StoreUnavailable`` or ``DiskFull``: then all are sent again, those that arrived too.
        """
        ...

    async def close(self) -> None: ...


class Feed(Protocol):
    """The far end of a route that goes over a broker: fills a ledger."""

    async def run_for_ever(self) -> None:
        """Until cancelled; outages are waited out."""
        ...

    async def drain(self) -> int:
        """Carry what has arrived until now; returns how many records were new. Raises ``StoreUnavailable``, ``DiskFull``."""
        ...


@dataclass(frozen=True, slots=True)
class TotalsQuestion:
    """Which records, by when they ended (``since`` ≤ day < ``until``, whole UTC days), and by what they are added up."""

    since: datetime
    until: datetime
    by: tuple[Grouping, ...] = ()
    tenant_id: TenantId | None = None
    user_id: UserId | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over generations. ``group`` maps what the question grouped by to its values; ``unpriced`` of them have an unknown cost."""

    group: Mapping[Grouping, str] = field(default_factory=dict[Grouping, str])
    generations: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    accelerator_ms: int = 0
    cost_nanos: int = 0
    unpriced: int = 0
    estimated: int = 0

    @property
    def output_tokens_per_accelerator_second(self) -> float | None:
        """The product's efficiency: tokens that were written for each second of the accelerators' time. ``None``: no time was measured."""
        return 1000 * self.output_tokens / self.accelerator_ms if self.accelerator_ms else None


class Ledger(Protocol):
    """Every method may raise ``StoreUnavailable`` or ``DiskFull``."""

    async def put(self, records: Sequence[UsageRecord]) -> int:
        """Keep those that are not kept yet, and their totals, in one transaction; returns how many were new."""
        ...

    async def totals(self, question: TotalsQuestion) -> tuple[Total, ...]:
        """Sums, in the groups' order; without groups exactly one."""
        ...

    async def recent(self, *, since: datetime) -> tuple[UsageRecord, ...]:
        """What ended since then, across tenants, oldest first."""
        ...

    async def records(self, tenant_id: TenantId, *, since: datetime, limit: int) -> tuple[UsageRecord, ...]:
        """A tenant's newest records."""
        ...
