"""Passwords: hashed with Argon2id (RFC 9106) in a few threads, behind a pace that is kept before anything is hashed.

A name that nobody has costs one hash too, and a refusal comes at a set time after its try, which hides what the look-up took. OWASP's
parameters (19 MiB, two passes) keep 2 × cores hashes at once below 160 MiB on four cores; beyond ``_MOST_WAITING`` the next caller is
asked to come back.
"""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from antiphon.core.clock import Clock
from antiphon.core.errors import FieldFault, InvalidRequest, RateLimited
from antiphon.core.ids import IdSource
from antiphon.core.tenancy import User
from antiphon.edge.sign_in_gate import SignInGate
from antiphon.edge.sign_in_pace import TryLater
from antiphon.stores.accounts.base import Accounts

MIN_PASSWORD = 8
MAX_PASSWORD = 1024

REFUSAL_SECONDS = 0.15
"""From a try to its refusal, where the machine is not too busy: a few times what a hash takes."""

_COARSE_S = 0.002
_MOST_WAITING = 32
_BUSY_RETRY_MS = 1000
_Result = TypeVar("_Result")


def new_hasher() -> PasswordHasher:
    """What production hashes with."""
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def check_new_password(password: str, *, name: str) -> None:
    """Raises ``InvalidRequest`` for one that is too short, too long, or the user's own name. No rules about kinds of characters."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise InvalidRequest([FieldFault("password", f"Use {MIN_PASSWORD} to {MAX_PASSWORD} characters.")])
    if password.casefold() == name.casefold() or len(set(password)) == 1:
        raise InvalidRequest([FieldFault("password", "This is too easy to guess.")])


def encode_password(hasher: PasswordHasher, password: str) -> str:
    """The hash to keep. Blocks for some 30 ms."""
    return hasher.hash(unicodedata.normalize("NFC", password))


class Passwords:
    """Checks and hashes; its threads start with the first password and end with ``close``."""

    def __init__(
        self,
        accounts: Accounts,
        gate: SignInGate,
        ids: IdSource,
        clock: Clock,
        *,
        hasher: PasswordHasher | None = None,
        refusal_seconds: float = REFUSAL_SECONDS,
    ) -> None:
        self._clock = clock
        self._refusal_seconds = refusal_seconds
        self._accounts = accounts
        self.gate = gate
        self._hasher = new_hasher() if hasher is None else hasher
        self._threads = ThreadPoolExecutor(2 * (os.cpu_count() or 1), thread_name_prefix="passwords")
        self._nobodys_password = ids.secret(16)
        self._nobodys_hash: str | None = None
        self._waiting = 0

    async def user_of(self, name: str, tenant: str | None, password: str, *, address: str) -> User | None:
        """Whose name and password these are; ``None`` after the same work for nobody's. Raises ``RateLimited``, ``StoreUnavailable``."""
        await self._keep_pace(name, address)
        due = self._clock.monotonic() + self._refusal_seconds
        found = await self._accounts.password_of(name, tenant)
        encoded = await self._nobodys() if found is None else found.encoded
        matches = await self._in_thread(lambda: _matches(self._hasher, encoded, password))
        if found is not None and matches:
            return found.user
        await self._until(due)
        return None

    async def matches(self, user: User, password: str, *, address: str) -> bool:
        """Whether it is the user's password. Raises ``RateLimited``, ``StoreUnavailable``."""
        await self._keep_pace(user.id, address)
        encoded = await self._accounts.password(user.id)
        return encoded is not None and await self._in_thread(lambda: _matches(self._hasher, encoded, password))

    async def encode(self, password: str) -> str:
        """The hash to keep. Raises ``RateLimited`` where too many wait already."""
        return await self._in_thread(lambda: encode_password(self._hasher, password))

    def close(self) -> None:
        """No more hashing; what runs ends by itself within moments."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def check(self) -> None:
        """Raises ``AssertionError`` where a promise is broken."""
        assert 0 <= self._waiting <= _MOST_WAITING
        self.gate.check()

    async def _until(self, due: float) -> None:
        """A loop's timers are a millisecond coarse, counted from when they are set: what the look-up took would be told by its fraction
        of one. So the last of the time is waited out turn by turn.
        """
        await asyncio.sleep(due - self._clock.monotonic() - _COARSE_S)
        while self._clock.monotonic() < due:  # noqa: ASYNC110 - a timer is what is too coarse here
            await asyncio.sleep(0)

    async def _keep_pace(self, name: str, address: str) -> None:
        decision = await self.gate.ask(name, address)
        if isinstance(decision, TryLater):
            raise RateLimited("Too many tries to sign in.", retry_after_ms=round(decision.retry_after_s * 1000) + 1)

    async def _nobodys(self) -> str:
        if self._nobodys_hash is None:
            self._nobodys_hash = await self._in_thread(lambda: encode_password(self._hasher, self._nobodys_password))
        return self._nobodys_hash

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        """A caller who leaves frees no place: the hash goes on until it is done."""
        if self._waiting >= _MOST_WAITING:
            raise RateLimited("Many people are signing in right now.", retry_after_ms=_BUSY_RETRY_MS)
        self._waiting += 1
        running = asyncio.wrap_future(self._threads.submit(work))
        running.add_done_callback(self._done)
        return await asyncio.shield(running)

    def _done(self, running: asyncio.Future[_Result]) -> None:
        self._waiting -= 1
        if not running.cancelled():
            running.exception()


def _matches(hasher: PasswordHasher, encoded: str, password: str) -> bool:
    try:
        return hasher.verify(encoded, unicodedata.normalize("NFC", password))
    except (VerificationError, InvalidHashError):
        return False
