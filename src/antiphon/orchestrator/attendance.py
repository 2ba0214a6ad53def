"""What becomes of a generation that nobody reads: it goes on for a while, then with less haste or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from antiphon.core.clock import Clock
from antiphon.core.plans import Plan
from antiphon.core.tenancy import Band
from antiphon.orchestrator.readers import Readership

BACKGROUND = Band.BATCH

_TEMPORARY_GRACE_S = 0.5


class Stance(Enum):
    """``ATTENDED``: somebody reads, or has only just left. ``BACKGROUND``: nobody waits. ``GIVEN_UP``: nobody will read it."""

    ATTENDED = "attended"
    BACKGROUND = "background"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class AbandonPolicy:
    """``grace_s`` seconds without a reader make a generation abandoned. A temporary chat ends with its connection."""

    grace_s: float
    cancel: bool
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Absence:
    """Since when nobody reads; ``None`` while somebody does. ``came``: somebody did before."""

    since: float | None
    came: bool


def stance(absence: Absence, policy: AbandonPolicy, now: float) -> tuple[Stance, float | None]:
    """The stance at ``now``, and when it changes if nobody comes or goes (``None``: never). Pure."""
    if absence.since is None:
        return Stance.ATTENDED, None
    grace_s = _TEMPORARY_GRACE_S if policy.temporary and absence.came else policy.grace_s
    if now < absence.since + grace_s:
        return Stance.ATTENDED, absence.since + grace_s
    return (Stance.GIVEN_UP if policy.cancel or policy.temporary else Stance.BACKGROUND), None


class Attendance:
    """Follows one generation's readers and says what their absence means; ``run`` ends when it is given up."""

    def __init__(self, readership: Readership, clock: Clock, plan: Plan, on_band: Callable[[Band], object]) -> None:
        self._readership = readership
        self._clock = clock
        self._plan = plan
        self._on_band = on_band
        self.band = plan.band

    async def run(self, policy: AbandonPolicy) -> None:
        """Call ``on_band`` at each change of the band; return once the generation is to be cancelled."""
        while True:
            changed = asyncio.ensure_future(self._readership.change())
            try:
                now = self._clock.monotonic()
                readers = self._readership.readers
                absence = Absence(None if readers else self._readership.absent_since, self._readership.came)
                found, changes_at = stance(absence, policy, now)
                if found is Stance.GIVEN_UP:
                    return
                self._move(BACKGROUND if found is Stance.BACKGROUND else self._plan.band)
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if changes_at is None else changes_at - now):
                        await changed
            finally:
                changed.cancel()

    def _move(self, band: Band) -> None:
        if band is not self.band:
            self.band = band
            self._on_band(band)
