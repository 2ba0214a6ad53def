"""Who may try to sign in now: counted in this process, or by limits that all servers share.

Where tries cannot be counted nobody signs in, neither by password nor by link: a guard that is away must not be an open door.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from antiphon.core.clock import Clock
from antiphon.core.ids import GenerationId, IdKind, IdSource, TenantId
from antiphon.core.limits import Cap, Exhausted, Outcome, Reservation
from antiphon.edge.sign_in_pace import ADDRESS, NAME, NAME_FROM_ADDRESS, SignInPace, Try, TryLater, network_of
from antiphon.stores.limits.base import Limiter

_EVERYBODY = TenantId("sign-in")
"""Names are tried before anybody knows whose they are, so all tries are counted as one tenant's."""


class SignInGate(Protocol):
    async def ask(self, name: str, address: str) -> Try | TryLater:
        """Spend a try. Raises ``StoreUnavailable`` while tries cannot be counted."""
        ...

    async def check_open(self) -> None:
        """For what nobody can guess. Raises ``StoreUnavailable`` while tries cannot be counted."""
        ...

    def check(self) -> None:
        """Raises ``AssertionError`` where a promise is broken."""
        ...


class LocalGate:
    """Of one process, in its memory."""

    def __init__(self, pace: SignInPace, clock: Clock) -> None:
        self._pace = pace
        self._clock = clock

    async def ask(self, name: str, address: str) -> Try | TryLater:
        return self._pace.ask(name, address, now=self._clock.monotonic())

    async def check_open(self) -> None:
        pass

    def check(self) -> None:
        self._pace.check()


class SharedGate:
    """The same allowances as windows that roll: a burst in the time in which it would come back. Of names and addresses only hashes
    are kept.
    """

    def __init__(self, limiter: Limiter, ids: IdSource) -> None:
        self._limiter = limiter
        self._ids = ids

    async def ask(self, name: str, address: str) -> Try | TryLater:
        network = network_of(address)
        limits = tuple(
            Cap(f"{kind}:{_digest(*whose)}", "sign-in", int(allowance.burst), int(1000 * allowance.burst * allowance.seconds))
            for kind, whose, allowance in (
                ("both", (name, network), NAME_FROM_ADDRESS),
                ("name", (name,), NAME),
                ("address", (network,), ADDRESS),
            )
        )
        this = GenerationId(self._ids.new(IdKind.GENERATION))
        verdict = await self._limiter.reserve(Reservation(_EVERYBODY, this, 0, 0, limits))
        if isinstance(verdict, Exhausted):
            return TryLater(verdict.retry_in_ms / 1000)
        await self._limiter.reconcile(Outcome(_EVERYBODY, this, 0, 0, limits))
        return Try()

    async def check_open(self) -> None:
        await self._limiter.standings(_EVERYBODY, ())

    def check(self) -> None:
        pass


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
