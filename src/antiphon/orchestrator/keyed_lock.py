"""One at a time for each key, and no memory of keys that nobody is at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class KeyedLock(Generic[K]):
    """Whoever holds a key keeps others with the same key waiting, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[K, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def holding(self, key: K) -> AsyncIterator[None]:
        """Wait for ``key`` and hold it."""
        lock, wanted = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._locks[key]
            if wanted == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, wanted - 1)
