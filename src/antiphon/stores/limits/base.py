"""The port of the limiter: amounts are reserved before work begins and reconciled when it has ended, once per generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.ids import GenerationId, TenantId
from antiphon.core.limits import Limit, Outcome, Reservation, Standing, Verdict

HOLD_MS = 30_000
"""A reservation that nobody renews for so long was a dead server's: what it held comes back."""

ASK_AGAIN_MS = 1_000
"""How soon who has all their answers being written may ask whether one has ended."""

REMEMBERED_MS = 3_600_000
"""How long a limiter knows that a generation was reconciled, so that a second time does nothing."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used ``age_ms`` ago, as an account of use remembers it; for a limiter that has lost its own memory."""

    outcome: Outcome
    age_ms: int


class Limiter(Protocol):
    """Every call is one atomic step over all the limits that it names, which belong to one tenant.

    Time is the driver's own, and neither a caller's clock nor one set back or forth frees anything that was used. Raises
    ``StoreUnavailable`` where the driver cannot be reached.
    """

    async def reserve(self, reservation: Reservation) -> Verdict:
        """Hold the amounts under every limit, or under none. A second time for one generation changes nothing and is granted."""
        ...

    async def renew(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        """Keep a reservation for another ``HOLD_MS``; ``False`` where there is none any more."""
        ...

    async def reconcile(self, outcome: Outcome) -> bool:
        """Put what was used in place of what was held; always succeeds, and does nothing (``False``) the second time.

        What is used beyond the reservation is owed. A generation without a reservation, because it expired, is charged whole.
        """
        ...

    async def release(self, tenant_id: TenantId, generation_id: GenerationId) -> bool:
        """Give back all that is held for a generation which was not to be; ``False`` where nothing is."""
        ...

    async def standings(self, tenant_id: TenantId, limits: Sequence[Limit]) -> tuple[Standing, ...]:
        """Where ``limits`` stand now, in their order. Changes nothing."""
        ...

    async def close(self) -> None: ...
